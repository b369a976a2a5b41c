"""Resumption of attempts: an attempt passes from one holder to the next by a mark, a pause and a resume.

A mark says how many calls have ended. The next holder resumes from it and keeps these calls; all others are abandoned,
running ones are cancelled. It gets a record and a key of its own, and the old key stays closed.
"""

import dataclasses
import time
from dataclasses import dataclass

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.finalize import Finalizer
from agent_layer.gateway.rollouts.registry import RolloutRegistry
from agent_layer.gateway.rollouts.rollout import Lease, LiveRollout, new_key
from agent_layer.schema import MarkedRollout, Resumed, Resumption


@dataclass(frozen=True, kw_only=True)
class AttemptResumption:
    """Passes attempts from one holder to the next."""

    rollouts: RolloutRegistry
    finalizer: Finalizer
    counters: Counters

    def mark(self, rollout: LiveRollout) -> MarkedRollout:
        """Return how far an attempt has come. From now on it is kept for another holder when this one is gone.

        Raises: RefusedError: it is closed or paused.
        """
        rollout.check_is_open()
        rollout.lease.has_checkpoint = True
        return _make_mark(rollout)

    async def pause(self, rollout: LiveRollout) -> MarkedRollout:
        """Take the attempt from its holder: its calls are cancelled, its key opens nothing, and it waits for a resume.

        Raises: RefusedError: it is closed.
        """
        if rollout.lease.paused_at is None:
            rollout.check_is_open()
            rollout.lease.paused_at = self.rollouts.now()
            self.counters.add("rollouts_paused")
        await self.finalizer.stop_calls(rollout)
        return _make_mark(rollout)

    async def resume(
        self, trajectory_id: str, resumption: Resumption, token: int | None = None
    ) -> tuple[LiveRollout, list[str]]:
        """Pass an attempt to its next holder, even while the present one runs.

        Args:
            trajectory_id: the attempt.
            resumption: from where it goes on.
            token: the next holder's lease.

        Returns: what the new holder has, and the ids of the calls that are abandoned.

        Raises:
            NotFoundError: the attempt is closed, or not known here.
            BadInputError: the mark was not made of this attempt. BackPressureError: the log is full.
        """
        held = self.rollouts.find_resumable(trajectory_id)
        if not 0 <= resumption.calls <= len(held.history.ended):
            raise BadInputError(
                f"rollout {held.trajectory_id}: expected a mark of at most its {len(held.history.ended)} calls, found"
                f" {resumption.calls}; resume it from a checkpoint of this attempt"
            )
        self.rollouts.pass_fence(held.started.rollout_id, token)
        self.finalizer.check_room(held)
        while held.lease.paused_at is None or held.lease.running:
            await self.pause(held)
            # another client may have been quicker, or have closed it
            held = self.rollouts.find_resumable(trajectory_id)
        self.rollouts.pass_fence(held.started.rollout_id, token)
        self.rollouts.note_lease(held, token)
        return self._hand_on(held, resumption)

    def _hand_on(self, held: LiveRollout, resumption: Resumption) -> tuple[LiveRollout, list[str]]:
        """Nothing is awaited here, so that nothing happens in between."""
        left = [one for one in held.history.ended[resumption.calls :] if one.call_id not in held.totals.abandoned]
        abandoned = [one.call_id for one in held.history.ended[resumption.calls :]]
        resumed = Resumed(
            trajectory_id=held.trajectory_id,
            run=held.started.run,
            at=time.time(),
            worker=resumption.worker,
            abandoned=abandoned,
        )
        held.logs.add(self.finalizer.log.append(resumed))
        going_on = dataclasses.replace(  # what is known stays known, in the same tables
            held,
            lease=Lease(api_key=new_key(), has_checkpoint=True, is_resumed=True, active_at=held.budget.clock()),
            budget=msgspec.structs.replace(held.budget, opened_at=held.budget.clock() - resumption.seconds),
            totals=held.totals.without(left),
        )
        going_on.history.take_back_turns(one.question_id for one in left if one.spends_turn and not one.is_side_call)
        held.history.calls.abandon(going_on.totals.abandoned)  # what is left behind is neither repeated nor continued
        held.history.answers.abandon(going_on.totals.abandoned)
        for table in (held.history.sequences, held.history.prompts):
            table.keep_only(lambda place: place.call_id not in going_on.totals.abandoned)
        held.is_open = False
        self.rollouts.replace(going_on)
        self.counters.add("rollouts_resumed")
        return going_on, abandoned


def _make_mark(rollout: LiveRollout) -> MarkedRollout:
    budget = rollout.budget
    return MarkedRollout(
        trajectory_id=rollout.trajectory_id, calls=len(rollout.history.ended), seconds=budget.clock() - budget.opened_at
    )
