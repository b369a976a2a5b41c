# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .end import END_FILE as END_FILE, MAX_CHARACTERS as MAX_CHARACTERS, TrainerEnd as TrainerEnd, read_end as read_end
from .nodes.joined import JoinedCluster as JoinedCluster
from .nodes.needs import find_address as find_address, needs_of as needs_of, write_needs as write_needs
from .overrides import MARK as MARK, check_config as check_config, compose_config as compose_config
from .overrides import context_of as context_of, environment_of as environment_of, fix_temperature as fix_temperature
from .overrides import mode_of as mode_of, num_gpus_of as num_gpus_of, refuse_on_ray as refuse_on_ray
from .overrides import temperature_of as temperature_of, verl_overrides as verl_overrides
