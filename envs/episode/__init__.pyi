# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .episode import play as play
from .policy import Policy as Policy
