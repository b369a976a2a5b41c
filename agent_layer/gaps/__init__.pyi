# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .bisection import BisectOptions as BisectOptions, Finding as Finding, bisect_gap as bisect_gap
