# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .config import Method as Method, SupervisedConfig as SupervisedConfig, load_supervised as load_supervised
from .train import SupervisedStep as SupervisedStep, read_input as read_input, train_supervised as train_supervised
