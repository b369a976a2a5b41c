# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .options import AlgorithmConfig as AlgorithmConfig, Credit as Credit, DistillConfig as DistillConfig
from .options import OverlongPenalty as OverlongPenalty
from .resolve import ResolvedAlgorithm as ResolvedAlgorithm, resolve_algorithm as resolve_algorithm
from .schedule import Schedule as Schedule
