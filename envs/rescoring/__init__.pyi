# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .cli import rescore_rows as rescore_rows
