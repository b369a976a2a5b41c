# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .graphs import check_graph as check_graph, run_graph as run_graph
from .remote import RemoteCheckpointer as RemoteCheckpointer
from .store import CheckpointStore as CheckpointStore, LeaseCheckpointer as LeaseCheckpointer
