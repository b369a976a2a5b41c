# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .direct import read_log_record as read_log_record
