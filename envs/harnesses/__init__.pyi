# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .harness import Harness as Harness, Launch as Launch, SideCall as SideCall, ToolShape as ToolShape
from .harness import fill_tool as fill_tool
from .install import Installation as Installation
from .qualified import ALLOWED_LOSSES as ALLOWED_LOSSES, PartFigures as PartFigures, Qualification as Qualification
from .qualified import RenderedFigures as RenderedFigures, find_qualification as find_qualification
from .qualified import save_qualification as save_qualification
from .registry import find_harness as find_harness, list_harness_names as list_harness_names
