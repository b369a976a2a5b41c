# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .agent_run import AgentRun as AgentRun, STOPPED as STOPPED, StopReason as StopReason
from .host_client import HostDiedError as HostDiedError
from .pools import SharedHost as SharedHost
from .protocol import Check as Check, Checked as Checked, Judge as Judge, ScoredAttempt as ScoredAttempt
from .target import HostTarget as HostTarget, make_hosts as make_hosts, make_scorers as make_scorers
