# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .exclusions import read_exclusions as read_exclusions, write_exclusions as write_exclusions
from .held_out import HeldOutFilter as HeldOutFilter, load_held_out as load_held_out, open_held_out as open_held_out
from .held_out import read_held_out as read_held_out, read_held_out_sets as read_held_out_sets
from .held_out import read_named_sets as read_named_sets
from .journal import DrawJournal as DrawJournal, journal_path as journal_path
from .mix import MixFile as MixFile, mix_path as mix_path
from .source import TaskSource as TaskSource, open_sources as open_sources
from .source import open_training_sources as open_training_sources
from .state import Draw as Draw, StreamState as StreamState
from .stream import TaskStream as TaskStream
from .task_file import TaskFile as TaskFile
