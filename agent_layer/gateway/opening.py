"""This file holds the opening of rollouts: a request becomes an attempt with a key of its own."""

import time
from collections.abc import Callable

from agent_layer.errors import BadInputError
from agent_layer.gateway.budgets import Budget
from agent_layer.gateway.rollouts import LiveRollout, new_key
from agent_layer.schema.gateway import OpenRequest, start_of
from agent_layer.schema.ids import check_name, new_id
from agent_layer.schema.task import NOT_SAMPLING, Limits

__all__ = ["rollout_of"]


def rollout_of(request: OpenRequest, run: str, mint: Callable[[], str] = new_id) -> LiveRollout:
    """Make what is asked for.

    Args:
        request: what the opener said.
        run: run of rollouts that name none.
        mint: makes ids of rollouts that have none.

    Raises: BadInputError: a name cannot stand in addresses, or what is no sampling is to be overridden.
    """
    started = start_of(request, rollout_id=mint(), run=run, at=time.time())
    check_name(started.rollout_id, "rollout")
    check_name(started.run, "run")
    if started.attempt < 0:
        raise BadInputError(
            f"rollout {started.rollout_id}: attempts count from 0, found {started.attempt}; choose another"
        )
    if fixed := NOT_SAMPLING.intersection(request.sampling):
        raise BadInputError(
            f"rollout {started.rollout_id}: expected sampling to name what shapes an answer, found"
            f" {', '.join(sorted(fixed))}, which the agent or the gateway decides; leave it out"
        )
    return LiveRollout(
        started=started,
        api_key=new_key(),
        budget=Budget(limits=request.limits or Limits()),
        sampling=request.sampling,
        is_ours=request.owner != "worker",
    )
