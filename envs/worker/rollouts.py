"""This file holds how a worker's attempts are opened at the gateway, kept open, and closed. All of it blocks.

This file holds the wait before acceptance: until everything that an attempt left is stored and indexed.

One loop looks after all attempts of a worker, off the slots in which agents run.
"""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from agent_layer.dispatcher import Lease
from agent_layer.errors import AgentLayerError, BadInputError, NotFoundError, NotWholeError, UnreachableError
from agent_layer.schema import RewardSpec, Split
from agent_layer.schema.wire import OpenedRollout, OpenRequest, RenewedRollouts, Resumption, make_attempt_started
from agent_layer.state import Checkpoint, check_trainable
from envs.failures import RefusedTaskError
from envs.worker.context import WorkerContext
from tracer.core import Rollout
from tracer.transport import GatewayClient

_log = logging.getLogger(__name__)


def open_attempt(
    place: WorkerContext, lease: Lease, rewards: dict[str, RewardSpec], checkpoint: Checkpoint | None = None
) -> Rollout:
    """Record the beginning of an attempt, then ask the gateway for its address.

    Args:
        place: where it is done.
        lease: whose attempt it is.
        rewards: that the task declares.
        checkpoint: from where the attempt goes on; its beginning is recorded again, as the first record may be on a
            machine that is gone.

    Raises:
        RefusedTaskError: the gateway refuses the task. BadInputError: it refuses the checkpoint.
        UnreachableError: it does not answer.
        NotFoundError: the gateway does not keep the attempt any more.
    """
    task = lease.task
    request = OpenRequest(
        task_id=task.id,
        task_type=task.task_type,
        run=task.run,
        split=task.split,
        rollout_id=lease.rollout_id,
        attempt=lease.attempt,
        group_id=lease.group_id,
        agent=task.agent or place.agent,
        labels=task.labels,
        limits=task.limits,
        sampling=task.sampling,
        rewards=rewards,
        env=task.env or place.env,
        env_version=place.env_version,
        owner="worker",
        lease_seconds=place.settings.lease_seconds,
        resume=checkpoint and Resumption(calls=checkpoint.calls, seconds=checkpoint.seconds, worker=place.worker),
    )
    log = place.recorder.append(
        make_attempt_started(
            request, rollout_id=lease.rollout_id, run=task.run, at=time.time(), worker=place.worker, task=task
        )
    )
    if lease.attempt > 0:
        with suppress(NotFoundError, UnreachableError):  # whatever is left of the attempt before may call no more
            place.gateway.close(lease.rollout_id, lease.attempt - 1)
    rollout = Rollout.of(_open(place.gateway, request), run=task.run, sink=place.recorder)
    rollout.logs.update([log, *(checkpoint.logs if checkpoint else ())])
    return rollout


def _open(gateway: GatewayClient, request: OpenRequest) -> OpenedRollout:
    try:
        return gateway.open(request)
    except BadInputError as error:
        if request.resume is not None:
            raise
        raise RefusedTaskError(*error.args) from error


def renew_keys(place: WorkerContext, trajectory_ids: Sequence[str]) -> RenewedRollouts | None:
    """Let the keys of running attempts hold as long as their leases do; None: the gateway does not answer."""
    try:
        return place.gateway.renew(trajectory_ids, place.settings.lease_seconds)
    except AgentLayerError as error:
        _log.warning("keys are not renewed error=%s", error)
        return None


def close_attempt(place: WorkerContext, rollout: Rollout, split: Split, *, abort: bool = False) -> int:
    """Let the gateway take no more calls of an attempt; give the number of those that it took.

    Args:
        place: where it is done.
        rollout: the attempt, by whose key the gateway knows who holds it.
        split: of its task.
        abort: cut off running calls instead of letting them end.

    Raises:
        LeaseLostError: another holder went on with it.
        CaptureError: it is to be trained on and holds answers without tokens.
        UnreachableError, NotFoundError: the gateway is gone, or was started anew.
        NotWholeError: a call has begun and not ended.
    """
    closed = place.gateway.close(rollout.rollout_id, rollout.attempt, key=rollout.api_key, abort=abort)
    if closed.started != closed.ended:
        raise NotWholeError(
            f"attempt {rollout.trajectory_id}: expected all {closed.started} calls to have ended, found {closed.ended};"
            " the attempt is run again"
        )
    check_trainable(closed, split)
    return closed.started
