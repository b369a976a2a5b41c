# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .checkpoint import CheckpointDirectory as CheckpointDirectory, Cursor as Cursor, hold_run as hold_run
from .feed import count_groups as count_groups
from .resumed import list_fixed_options as list_fixed_options, refuse_changes as refuse_changes
from .run import EmbeddedDriver as EmbeddedDriver, check_run as check_run, read_model_bounds as read_model_bounds
from .run import stop_on_signals as stop_on_signals, train_run as train_run
from .run_lock import claim_run as claim_run
