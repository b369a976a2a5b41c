# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .command import PREFIX as PREFIX, make_harness_target as make_harness_target
from .harness import Harness as Harness, SideCall as SideCall, ToolShape as ToolShape, fill_tool as fill_tool
from .install import Installation as Installation
from .qualified import ALLOWED_LOSSES as ALLOWED_LOSSES, PartFigures as PartFigures, Qualification as Qualification
from .qualified import RenderedFigures as RenderedFigures, find_qualification as find_qualification
from .qualified import save_qualification as save_qualification
from .registry import find_harness as find_harness
__all__ = [
    "Harness", "SideCall", "ToolShape",
]
