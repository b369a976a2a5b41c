# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .directories import OUTSIDE as OUTSIDE, hash_template as hash_template
from .options import ArtifactsOption as ArtifactsOption, BOX_MEMORY_MB as BOX_MEMORY_MB
from .options import BoxMemoryOption as BoxMemoryOption, BoxOption as BoxOption, DiffOption as DiffOption
from .options import HomeOption as HomeOption, KeepWorkdirOption as KeepWorkdirOption, MountsOption as MountsOption
from .options import ShareWorkdirOption as ShareWorkdirOption, WorkdirOption as WorkdirOption
from .options import as_arguments as as_arguments, make_command_options as make_command_options
from .plan import CommandEnd as CommandEnd, CommandOptions as CommandOptions, CommandPlace as CommandPlace
from .plan import CommandPlan as CommandPlan, read_last_line as read_last_line
from .target import CommandTarget as CommandTarget
