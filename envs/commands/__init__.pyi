# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from . import options as options
from .directories import hash_template as hash_template
from .plan import CommandEnd as CommandEnd, CommandOptions as CommandOptions, CommandPlace as CommandPlace
from .plan import CommandPlan as CommandPlan, read_last_line as read_last_line
from .target import CommandTarget as CommandTarget
