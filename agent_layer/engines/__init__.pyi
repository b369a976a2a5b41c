# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .control import EngineControl as EngineControl, EngineReport as EngineReport, read_model_list as read_model_list
from .entry import Engine as Engine
from .fingerprints import read_fingerprints as read_fingerprints
from .holds import EngineHold as EngineHold
from .join import drain_engine as drain_engine, join_engine as join_engine, leave_engine as leave_engine
from .join import open_engine_registry as open_engine_registry, read_engine_address as read_engine_address
from .join import register_engine as register_engine, remove_ended_engines as remove_ended_engines
from .kinds import ADAPTER_FILE as ADAPTER_FILE, ADAPTER_SUFFIX as ADAPTER_SUFFIX, KINDS as KINDS
from .owners import PushedVersion as PushedVersion, hold_engines as hold_engines, release_engines as release_engines
from .policies import behind_seconds as behind_seconds, get_policy as get_policy, newest_number as newest_number
from .policies import newest_policy as newest_policy, register_policy as register_policy
from .policies import restore_policies as restore_policies
from .registry import EngineRegistry as EngineRegistry
from .sampling import BAD_LOGPROBS as BAD_LOGPROBS, GRAMMARS as GRAMMARS, GREEDY as GREEDY
from .sampling import LOWEST_TEMPERATURE as LOWEST_TEMPERATURE, NEUTRALISED as NEUTRALISED
from .sampling import NEUTRAL_SAMPLING as NEUTRAL_SAMPLING, NO_LOGPROBS as NO_LOGPROBS, RAW_LOGPROBS as RAW_LOGPROBS
from .sampling import SMALLEST_LOGPROB as SMALLEST_LOGPROB, UNREPRODUCIBLE as UNREPRODUCIBLE
from .sampling import can_neutralise as can_neutralise, find_unreproducible as find_unreproducible
from .sampling import is_neutral as is_neutral, neutral_value as neutral_value
from .teacher import TeacherEngine as TeacherEngine
