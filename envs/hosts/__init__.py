"""Host processes, which run user code apart from the worker.

The worker itself runs no user code: agents run in a host, which all share or each has for itself, and scorers run in
another. Whatever a host does, the worker keeps its leases, and no descendant of a host outlives it.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.hosts.agent_run import STOPPED as STOPPED
    from envs.hosts.agent_run import AgentRun as AgentRun
    from envs.hosts.agent_run import StopReason as StopReason
    from envs.hosts.host import HostDiedError as HostDiedError
    from envs.hosts.pools import SharedHost as SharedHost
    from envs.hosts.protocol import Check as Check
    from envs.hosts.protocol import Checked as Checked
    from envs.hosts.protocol import Judge as Judge
    from envs.hosts.protocol import ScoredAttempt as ScoredAttempt
    from envs.hosts.target import HostTarget as HostTarget
    from envs.hosts.target import make_hosts as make_hosts
    from envs.hosts.target import make_scorers as make_scorers
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.hosts.agent_run": (
                "AgentRun",
                "STOPPED",
                "StopReason",
            ),
            "envs.hosts.host": ("HostDiedError",),
            "envs.hosts.pools": ("SharedHost",),
            "envs.hosts.protocol": (
                "Check",
                "Checked",
                "Judge",
                "ScoredAttempt",
            ),
            "envs.hosts.target": (
                "HostTarget",
                "make_hosts",
                "make_scorers",
            ),
        },
    )
