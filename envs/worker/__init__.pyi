# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .service import WorkOptions as WorkOptions, serve_worker as serve_worker
from .worker import wait_within as wait_within
