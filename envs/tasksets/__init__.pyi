# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .folder_lines import read_lines as read_lines
from .gate.trainable import check_judges as check_judges, check_trainable as check_trainable
from .gate.trainable import find_taskset as find_taskset, write_task_line as write_task_line
from .generated import TaskKey as TaskKey, choose_split as choose_split, list_keys as list_keys
from .generated import read_answer as read_answer, read_key as read_key, write_replies as write_replies
from .guess_number.game import Game as Game, HIGHEST as HIGHEST, REWARDS as REWARDS
from .guess_number.game import chance_without_hints as chance_without_hints
from .guess_number.game import chance_without_repeats as chance_without_repeats, compare as compare
from .harbor import HarborTasks as HarborTasks, find_task_directories as find_task_directories
from .registry import list_taskset_names as list_taskset_names, open_taskset as open_taskset
from .registry import read_holdout as read_holdout
from .taskset import TaskSet as TaskSet
from envs.script import Script as Script
__all__ = [
    "Script", "TaskSet", "list_taskset_names", "open_taskset",
]
