# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .folder_lines import read_lines as read_lines
from .gate.gate import Examination as Examination, GateOptions as GateOptions
from .gate.report import Finding as Finding, Report as Report, make_finding as make_finding
from .gate.screen import print_report as print_report, show_progress as show_progress
from .gate.trainable import check_judges as check_judges, check_trainable as check_trainable, save_report as save_report
from .gate.trainable import write_task_line as write_task_line
from .generated import TaskKey as TaskKey, choose_split as choose_split, list_keys as list_keys, read_key as read_key
from .generated import write_replies as write_replies
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
