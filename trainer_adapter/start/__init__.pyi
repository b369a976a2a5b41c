# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .call import list_command as list_command, train as train, train_with_worker as train_with_worker
from .job import Job as Job, open_page as open_page, run_job as run_job
from .memory import ModelShape as ModelShape, estimate_memory as estimate_memory, sum_bytes as sum_bytes
from .plan import HarnessWorker as HarnessWorker, plan_run as plan_run, write_plan as write_plan
from .ranks import run_rank as run_rank, train_on_ranks as train_on_ranks
from .ranks import train_supervised_on_ranks as train_supervised_on_ranks
from .ray import train_on_ray as train_on_ray
