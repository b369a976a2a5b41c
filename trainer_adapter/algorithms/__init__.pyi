# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .options import AlgorithmConfig as AlgorithmConfig, Credit as Credit, DistillConfig as DistillConfig
from .options import Options as Options, OverlongPenalty as OverlongPenalty
from .plug_ins import ADVANTAGES as ADVANTAGES, CREDITS as CREDITS, LOSSES as LOSSES, VERL_LOSSES as VERL_LOSSES
from .plug_ins import find_part as find_part
from .resolve import ResolvedAlgorithm as ResolvedAlgorithm, resolve_algorithm as resolve_algorithm
from .schedule import Schedule as Schedule
