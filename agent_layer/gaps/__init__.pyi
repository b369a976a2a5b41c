# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from . import bisect as bisect
from .bisect import BisectOptions as BisectOptions, Finding as Finding
