# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .evaluator import EvalRequest as EvalRequest, RoundResult as RoundResult, evaluate as evaluate
from .figures.figures import RoundSettings as RoundSettings
from .held_out import HeldOutEvaluator as HeldOutEvaluator
from .identity import fingerprint_weights as fingerprint_weights, is_earlier_fingerprint as is_earlier_fingerprint
from .rounds import TaskSource as TaskSource
from .tasks import LoadedTasks as LoadedTasks, load_tasks as load_tasks
