"""The rollouts that a gateway knows, by name: open ones, and the closed ones that it still answers for."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from agent_layer.errors import BadInputError, NotFoundError
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.rollouts.counters import Counters
from agent_layer.gateway.rollouts.rollout import LiveRollout
from agent_layer.schema import RenewedRollouts, RenewRequest, make_trajectory_id

Lapse: TypeAlias = Literal["idle", "expired", "forgotten"]
"""Why a rollout expires: it was not used, its key was not renewed, or it was paused for too long."""

_MAX_CLOSED = 10_000
"""Closed rollouts that are still answered for; each is 2.6 KB (tracemalloc, 2026-11-28)."""


class RolloutRegistry:
    """All rollouts that this process knows. A restarted gateway knows none: their attempts are lost.

    Args:
        idle_seconds: without any use, after which a rollout expires.
        paused_seconds: without a resume, after which a paused rollout expires.
        counters: count every rollout that is closed.
        clock: seconds, from any beginning.
    """

    def __init__(
        self,
        idle_seconds: float,
        counters: Counters,
        clock: Callable[[], float] = time.monotonic,
        *,
        paused_seconds: float = 86_400.0,
    ) -> None:
        self.now = clock
        self._paused_seconds = paused_seconds
        self._counters = counters
        self._idle_seconds = idle_seconds
        self._live: dict[str, LiveRollout] = {}
        self._closed: OrderedDict[str, LiveRollout] = OrderedDict()
        self._newest: dict[str, int] = {}
        """By rollout the highest attempt."""
        self._fences: dict[str, int] = {}
        """By rollout the latest lease that asked for it."""
        self._leased: dict[str, str] = {}
        """By rollout the attempt that was last opened under a lease."""
        self._tokens: dict[str, int] = {}
        """By attempt the lease that holds it, or held it last."""

    @property
    def live(self) -> list[LiveRollout]:
        """Those that are open."""
        return list(self._live.values())

    def add(self, rollout: LiveRollout, token: int | None = None) -> LiveRollout:
        """Register a rollout; the same attempt opened again is the registered one.

        Args:
            rollout: one attempt.
            token: the lease under which a worker opens it; None: no worker does.

        Raises: BadInputError: the attempt was closed before, or is paused.
        """
        if (found := self._live.get(rollout.trajectory_id)) and found.lease.paused_at is not None:
            raise BadInputError(
                f"rollout {rollout.trajectory_id}: it is paused, and its key opens nothing; resume it from its"
                " checkpoint, or open another attempt"
            )
        if rollout.trajectory_id in self._closed:
            raise BadInputError(
                f"rollout {rollout.trajectory_id}: it is closed and cannot be opened again; open another attempt"
            )
        found = self._live.setdefault(rollout.trajectory_id, rollout)
        found.lease.used_at = self.now()
        rollout_id, attempt = rollout.started.rollout_id, rollout.started.attempt
        self._newest[rollout_id] = max(attempt, self._newest.get(rollout_id, attempt))
        self.note_lease(found, token)
        return found

    def pass_fence(self, rollout_id: str, token: int | None) -> LiveRollout | None:
        """Let a lease act for a rollout, and from now on no earlier one.

        Args:
            rollout_id: the rollout.
            token: the lease; None: no worker's.

        Returns: the open attempt at it that an earlier lease holds, to be aborted.
        Raises: RefusedError: a later lease has asked for it.
        """
        if token is None or rollout_id not in self._newest:
            return None
        if token < self._fences.setdefault(rollout_id, token):
            raise RefusedError(
                412, "rollout_handed_on", f"rollout {rollout_id}: a later lease holds it; discard this attempt"
            )
        self._fences[rollout_id] = token
        held = self._live.get(self._leased.get(rollout_id, ""))
        return held if held is not None and self.is_used(held.trajectory_id, token) else None

    def note_lease(self, rollout: LiveRollout, token: int | None) -> None:
        """Note the lease that holds an attempt from now on."""
        if token is not None:
            self._fences[rollout.started.rollout_id] = token
            self._leased[rollout.started.rollout_id] = rollout.trajectory_id
            self._tokens[rollout.trajectory_id] = token

    def is_used(self, trajectory_id: str, token: int | None) -> bool:
        """Whether another lease has opened this attempt here."""
        return token is not None and self._tokens.get(trajectory_id, token) != token

    def find_resumable(self, trajectory_id: str) -> LiveRollout:
        """Find an attempt that a worker can resume.

        Raises: NotFoundError: there is none; it must be tried again from the beginning.
        """
        if found := self._live.get(trajectory_id):
            return found
        why = "closed for good" if trajectory_id in self._closed else "not known here; did the gateway restart?"
        raise NotFoundError(
            f"rollout {trajectory_id}: expected an attempt to go on with, found it {why}; count the attempt as lost and"
            " open another"
        )

    def replace(self, rollout: LiveRollout) -> None:
        """Replace an attempt by what its next holder resumes."""
        rollout.lease.used_at = self.now()
        self._live[rollout.trajectory_id] = rollout

    def find_newest(self, rollout: LiveRollout) -> LiveRollout | None:
        """Find the newest attempt at the same rollout; None when none was opened yet."""
        newest = self._newest.get(rollout.started.rollout_id)
        return None if newest is None else self.look(make_trajectory_id(rollout.started.rollout_id, newest))

    def forget(self, rollout: LiveRollout) -> None:
        """Undo ``add``."""
        self._live.pop(rollout.trajectory_id, None)

    def look(self, trajectory_id: str) -> LiveRollout | None:
        """Find an attempt, closed ones included; None: this process never opened it."""
        return self._live.get(trajectory_id) or self._closed.get(trajectory_id)

    def find(self, trajectory_id: str) -> LiveRollout:
        """Find an attempt, closed ones included, and count this as use.

        Raises: NotFoundError: this process never opened it.
        """
        found = self.look(trajectory_id)
        if found is None:
            raise NotFoundError(
                f"rollout {trajectory_id}: this gateway does not know it, because it was never opened here or the"
                " gateway restarted since; count the attempt as lost and open another"
            )
        found.lease.used_at = self.now()
        return found

    def find_attempt(self, rollout_id: str, attempt: int | None) -> LiveRollout:
        """Find one attempt at a rollout; None: the newest.

        Raises: NotFoundError: this process never opened it.
        """
        return self.find(
            make_trajectory_id(rollout_id, self._newest.get(rollout_id, 0) if attempt is None else attempt)
        )

    def renew(self, trajectory_id: str, lease_seconds: float) -> bool:
        """Let a key hold for ``lease_seconds`` from now; False: there is no open rollout of this name."""
        rollout = self._live.get(trajectory_id)
        if rollout is None or rollout.lease.paused_at is not None or self._find_lapse(rollout) == "expired":
            return False
        rollout.lease.end_of_key = self.now() + lease_seconds
        return True

    def renew_all(self, request: RenewRequest) -> RenewedRollouts:
        """Renew many keys, and report what each rollout does."""
        unknown = [one for one in request.trajectory_ids if not self.renew(one, request.lease_seconds)]
        known = [self._live[one] for one in request.trajectory_ids if one in self._live]
        return RenewedRollouts(
            unknown=unknown,
            quiet_seconds={one.trajectory_id: round(one.quiet_seconds, 3) for one in known},
            calling=[one.trajectory_id for one in known if one.lease.waits.num_running],
            waited_seconds={one.trajectory_id: round(one.lease.waits.busy_seconds, 3) for one in known},
        )

    def expired(self) -> Iterator[tuple[LiveRollout, Lapse]]:
        """Yield open rollouts that expire. A running call counts as use."""
        for rollout in self.live:
            if rollout.lease.running:
                rollout.lease.used_at = self.now()
            if lapse := self._find_lapse(rollout):
                yield rollout, lapse

    def close(self, rollout: LiveRollout) -> None:
        """Take no more calls for it."""
        rollout.is_open = False
        if self._live.pop(rollout.trajectory_id, None):
            self._closed[rollout.trajectory_id] = rollout
            self._counters.add("rollouts_closed")
        while len(self._closed) > _MAX_CLOSED:
            _, oldest = self._closed.popitem(last=False)
            self._tokens.pop(oldest.trajectory_id, None)
            if self._newest.get(oldest.started.rollout_id) == oldest.started.attempt:
                del self._newest[oldest.started.rollout_id]
                self._fences.pop(oldest.started.rollout_id, None)
                self._leased.pop(oldest.started.rollout_id, None)

    def _find_lapse(self, rollout: LiveRollout) -> Lapse | None:
        now = self.now()
        if rollout.lease.paused_at is not None:
            return "forgotten" if now - rollout.lease.paused_at >= self._paused_seconds else None
        if rollout.lease.end_of_key is not None and now >= rollout.lease.end_of_key:
            return "expired"
        return "idle" if now - rollout.lease.used_at > self._idle_seconds else None
