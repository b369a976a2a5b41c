# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .command import PREFIX as PREFIX, check_harness as check_harness, make_harness_target as make_harness_target
from .harness import Harness as Harness, SideCall as SideCall, ToolShape as ToolShape, fill_tool as fill_tool
from .install import Installation as Installation
from .qualified import ALLOWED_LOSSES as ALLOWED_LOSSES, NeededLengths as NeededLengths, PartFigures as PartFigures
from .qualified import Qualification as Qualification, RenderedFigures as RenderedFigures
from .qualified import find_qualification as find_qualification, save_qualification as save_qualification
from .registry import find_harness as find_harness
__all__ = [
    "Harness", "SideCall", "ToolShape",
]
