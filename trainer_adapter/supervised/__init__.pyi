# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .config import load_supervised as load_supervised
from .train import train_supervised as train_supervised
