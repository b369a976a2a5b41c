# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .agents import independent as independent, near_miss as near_miss, reference as reference
from .environment import RepairEnvironment as RepairEnvironment
from .repair import Repair as Repair
from .scorer import RepairScorer as RepairScorer
