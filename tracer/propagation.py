"""This file holds how a rollout travels to another process: in the headers of a request between agents."""

from collections.abc import Generator, Mapping, MutableMapping
from contextlib import contextmanager

from agent_layer.schema.ids import check_name, split_trajectory_id
from tracer.context import current_scope
from tracer.handle import Rollout
from tracer.rollouts import enter_rollout
from tracer.traceparent import active_trace, new_trace, parse_trace, write_trace
from tracer.tracing import active

__all__ = ["extract", "inject"]

_ROLLOUT_HEADER = "x-agent-layer-rollout"
_RUN_HEADER = "x-agent-layer-run"


def inject(headers: MutableMapping[str, str]) -> MutableMapping[str, str]:
    """Add the current rollout to the headers, and give them back; outside any rollout nothing is added.

    No key travels: whoever is to go on calling the model for this rollout has a key of the gateway itself.
    """
    if (scope := current_scope()) is not None:
        headers[_ROLLOUT_HEADER] = scope.rollout.trajectory_id
        headers[_RUN_HEADER] = scope.rollout.run
        rollout, around = scope.rollout, active_trace()
        is_inside = around is not None and around.trace_id == rollout.trace_id and around != rollout.trace
        above = around.span_id if around and is_inside else None
        write_trace(headers, rollout.trace, above or rollout.span_id)
    return headers


@contextmanager
def extract(headers: Mapping[str, str]) -> Generator[Rollout | None]:
    """Run the block in the rollout that the headers name; in none when they name none.

    Raises: BadInputError: the headers name something that is no rollout.
    """
    named = {name.lower(): value for name, value in headers.items()}
    trajectory_id = named.get(_ROLLOUT_HEADER)
    if trajectory_id is None:
        yield None
        return
    rollout_id, attempt = split_trajectory_id(check_name(trajectory_id, "rollout"))
    tracing = active()
    gateway = tracing.gateway
    rollout = Rollout(
        trajectory_id=trajectory_id,
        rollout_id=rollout_id,
        attempt=attempt,
        run=check_name(named.get(_RUN_HEADER, tracing.settings.run), "run"),
        sink=tracing.sink,
        base_url=gateway and f"{gateway.url}/v1",
        api_key=tracing.settings.api_key,
        trace=parse_trace(named) or new_trace(),
    )
    with enter_rollout(rollout):
        yield rollout
