# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .openenv import make_trace as make_trace, read_rows as read_rows
from .prime_rl import PrimeRlFeed as PrimeRlFeed
from .rounds import GroupRequest as GroupRequest, RoundPlayer as RoundPlayer, leave_out as leave_out
from .trl import TrlRollouts as TrlRollouts
from .trl_async import AsyncTrlRollouts as AsyncTrlRollouts
