"""Host processes, which run user code apart from the worker.

The worker itself runs no user code: agents run in a host, which all share or each has for itself, and scorers run in
another. Whatever a host does, the worker keeps its leases, and no descendant of a host outlives it.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "agent_run": "STOPPED AgentRun StopReason",
        "host_client": "HostDiedError",
        "pools": "SharedHost",
        "protocol": "Check Checked Judge ScoredAttempt",
        "target": "HostTarget make_hosts make_scorers",
    },
)
