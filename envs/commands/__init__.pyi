# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .boxed import choose_box as choose_box
from .directories import OUTSIDE as OUTSIDE, hash_template as hash_template
from .options import BoxOption as BoxOption, CommandFlags as CommandFlags, as_arguments as as_arguments
from .options import make_box_spec as make_box_spec, take_command_flags as take_command_flags
from .plan import CommandEnd as CommandEnd, CommandOptions as CommandOptions, CommandPlace as CommandPlace
from .plan import CommandPlan as CommandPlan, TaskDefaults as TaskDefaults, read_last_line as read_last_line
from .target import CommandTarget as CommandTarget
from .tunnel import open_tunnel as open_tunnel
