# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .install import instrument as instrument
