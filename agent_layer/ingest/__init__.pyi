# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .app import build_app as build_app
from .messages import ImportBatch as ImportBatch, line_trajectory_id as line_trajectory_id, make_records as make_records
from .spans import read_line as read_line
