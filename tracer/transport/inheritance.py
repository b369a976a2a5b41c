"""The rollout that a process inherits from the environment of its starter.

A worker's command has the key of its rollout, and neither a log nor the store. The gateway records its model calls, and
receives its rewards; other records of such a process are dropped. A process started by ``agent-layer trace`` or with
``tracer.inject`` records into the log directory of its starter.
"""

from collections.abc import Mapping

from agent_layer.recorder import FlushReport, open_recorder
from agent_layer.schema import LogRecord, Reward, RewardRequest, check_name, make_trajectory_id, parse_trace
from agent_layer.settings import Inheritance, Settings, read_inheritance
from tracer.core import Rollout, Sink, new_trace
from tracer.transport.gateway_client import GatewayClient


class RewardSink:
    """Sink of a process without a log: sends rewards to the gateway at once, and drops other records."""

    def __init__(self, client: GatewayClient) -> None:
        self._client = client
        self._num_sent = 0

    def append(self, *records: LogRecord) -> str:
        """See Sink.

        Raises: UnreachableError: the gateway does not answer. BadInputError: it refuses the reward.
        """
        for record in records:
            if isinstance(record, Reward):
                self._client.reward(
                    RewardRequest(score=record.score, name=record.name, step=record.step, agent=record.agent)
                )
                self._num_sent += 1
        return "gateway"

    def is_settled(self, log_name: str) -> bool:  # noqa: ARG002  # the gateway waits for its own log
        """See Sink."""
        return True

    def flush(self, timeout: float | None = None) -> FlushReport:  # noqa: ARG002  # nothing is pending
        """See Sink."""
        return FlushReport(pending=0, lost=0, recorded=self._num_sent)


def rollout_from_environment(settings: Settings, variables: Mapping[str, str] | None = None) -> Rollout | None:
    """Return the rollout that a process was started for; None without one.

    Args:
        settings: run, when the environment names none, and log directory.
        variables: the environment; default: that of this process.

    Raises: BadInputError: the environment names no valid rollout, or no address of a gateway.
    """
    return None if (found := read_inheritance(variables)) is None else _inherited_rollout(found, settings)


def _inherited_rollout(found: Inheritance, settings: Settings) -> Rollout:
    check_name(found.rollout_id, "AGENT_LAYER_ROLLOUT")
    return Rollout(
        trajectory_id=make_trajectory_id(found.rollout_id, found.attempt),
        rollout_id=found.rollout_id,
        attempt=found.attempt,
        run=settings.run,
        sink=_open_sink(found, settings),
        base_url=found.base_url,
        api_key=found.api_key,
        trace=parse_trace({"traceparent": found.traceparent}) or new_trace(),
    )


def _open_sink(found: Inheritance, settings: Settings) -> Sink:
    if found.has_log or found.base_url is None:
        return open_recorder(settings)
    return RewardSink(GatewayClient(found.base_url, found.api_key))
