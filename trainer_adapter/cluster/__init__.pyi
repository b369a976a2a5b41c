# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .end import END_FILE as END_FILE, MAX_CHARACTERS as MAX_CHARACTERS, TrainerEnd as TrainerEnd, read_end as read_end
from .nodes.joined import JoinedCluster as JoinedCluster
from .nodes.needs import find_address as find_address, plan_needs as plan_needs, write_needs as write_needs
from .overrides import MARK as MARK, check_config as check_config, choose_mode as choose_mode
from .overrides import compose_config as compose_config, count_gpus as count_gpus, make_environment as make_environment
from .overrides import refuse_on_ray as refuse_on_ray, verl_overrides as verl_overrides
