# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .gymnasium import open_environment as open_environment
