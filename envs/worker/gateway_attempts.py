"""Opens attempts at the gateway, renews their keys and closes them. Every function blocks."""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from agent_layer.dispatcher import Lease
from agent_layer.errors import (
    AccessRefusedError,
    AgentLayerError,
    BadInputError,
    NotFoundError,
    NotWholeError,
    UnreachableError,
)
from agent_layer.schema import (
    AttemptStarted,
    ClosedRollout,
    OpenRequest,
    RenewedRollouts,
    Resumption,
    RewardSpec,
    Split,
    derive_seed,
    make_attempt_started,
)
from agent_layer.state import Checkpoint, check_trainable
from envs.failures import RefusedTaskError
from envs.worker.context import WorkerContext
from tracer.core import Rollout

_log = logging.getLogger(__name__)


def open_attempt(
    context: WorkerContext,
    lease: Lease,
    rewards: dict[str, RewardSpec],
    checkpoint: Checkpoint | None = None,
    *,
    scorer: str | None = None,
) -> tuple[Rollout, AttemptStarted]:
    """Open an attempt at the gateway; return it with its start, which is still to be recorded.

    A refused number may be another attempt's, which has a start.

    Args:
        context: the worker that makes the attempt.
        lease: permission to make it.
        rewards: the rewards that the task declares.
        checkpoint: where the attempt resumes. Its start is the first holder's, whose machine may be gone.
        scorer: scorer of the task; None: the agent reports its rewards.

    Raises:
        RefusedTaskError: the gateway refuses the task. BadInputError: it refuses the checkpoint.
        UnreachableError: it does not answer.
        NotFoundError: it no longer holds the attempt to resume, or an earlier lease has used this attempt.
        LeaseLostError: a later lease holds the rollout.
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
        agent=task.agent or context.agent,
        labels=task.labels,
        limits=task.limits,
        sampling=task.sampling,
        sampling_seed=_sampling_seed(lease),
        side_calls=task.side_calls,
        rewards=rewards,
        env=task.env or context.env,
        env_version=context.env_version,
        scorer=scorer,
        owner="worker",
        lease_token=int(lease.token),
        lease_seconds=context.settings.lease_seconds,
        resume=checkpoint and Resumption(calls=checkpoint.calls, seconds=checkpoint.seconds, worker=context.worker),
    )
    if lease.attempt > 0:
        with suppress(NotFoundError, UnreachableError):  # the previous attempt may make no more calls
            context.gateway.close(lease.rollout_id, lease.attempt - 1)
    try:
        opened = context.gateway.open(request)
    except BadInputError as error:
        if request.resume is not None:
            raise
        raise RefusedTaskError(*error.args) from error
    rollout = Rollout.of(opened, run=task.run, sink=context.recorder)
    rollout.logs.update(checkpoint.logs if checkpoint else ())
    return rollout, (checkpoint and checkpoint.started) or make_attempt_started(
        request, rollout_id=lease.rollout_id, run=task.run, at=time.time(), worker=context.worker, task=task
    )


def _sampling_seed(lease: Lease) -> int | None:
    """Return the seed of this attempt; another attempt samples otherwise, because this one may fail for what it says.

    It does not follow from the names of run and task, so that a run is repeated under another name.
    """
    if lease.task.sampling_seed is None:
        return None
    return derive_seed(lease.task.sampling_seed, lease.rollout_id.rpartition(".")[2], lease.attempt)


def withdraw_attempt(context: WorkerContext, rollout: Rollout) -> None:
    """Close an attempt that was opened and cannot begin; without an answer, its key expires."""
    with suppress(AgentLayerError):
        context.gateway.close(rollout.rollout_id, rollout.attempt, key=rollout.api_key, abort=True)


def renew_keys(context: WorkerContext, trajectory_ids: Sequence[str]) -> RenewedRollouts | None:
    """Renew the keys of running attempts for as long as a lease lasts; None: the gateway does not answer.

    Raises: AccessRefusedError: it does not take the worker's key.
    """
    try:
        return context.gateway.renew(trajectory_ids, context.settings.lease_seconds)
    except AccessRefusedError:
        raise
    except AgentLayerError as error:
        _log.warning("keys are not renewed error=%s", error)
        return None


def close_attempt(context: WorkerContext, rollout: Rollout, split: Split, *, abort: bool = False) -> ClosedRollout:
    """Close an attempt to further calls; return what the gateway counted and noticed.

    Args:
        context: the worker that made the attempt.
        rollout: the attempt; its key shows the gateway who holds it.
        split: split of its task.
        abort: cut off running calls instead of letting them end.

    Raises:
        LeaseLostError: another holder went on with it.
        CaptureError: it is meant for training and holds answers without tokens.
        UnreachableError, NotFoundError: the gateway is gone, or has restarted.
        NotWholeError: a call has started and not ended.
    """
    closed = context.gateway.close(rollout.rollout_id, rollout.attempt, key=rollout.api_key, abort=abort)
    if closed.started != closed.ended:
        raise NotWholeError(
            f"attempt {rollout.trajectory_id}: cannot be sealed, {closed.ended} of its {closed.started} calls have"
            " ended; it is retried"
        )
    check_trainable(closed, split)
    return closed
