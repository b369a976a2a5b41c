# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .prices import Price as Price
from .quantities import CallCount as CallCount, count_calls as count_calls
