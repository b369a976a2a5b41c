# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .adapters import CaptureAdapter as CaptureAdapter, Door as Door, RecordedAnswer as RecordedAnswer
from .adapters import RolloutAdapter as RolloutAdapter, load_adapter as load_adapter
from .checks import CHECKS as CHECKS
from .engine import KitEngine as KitEngine, serve_kit_engine as serve_kit_engine
from .ours import open_own_gateway as open_own_gateway, read_shown_step as read_shown_step
from .ours import run_own_gateway as run_own_gateway
from .run import CheckResult as CheckResult, list_rows as list_rows, run_checks as run_checks, wait_for as wait_for
