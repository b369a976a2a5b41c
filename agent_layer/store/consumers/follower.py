"""Delivery of closed groups to a consumer: whole, in order of closing, and again until it acknowledges them."""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import TypedDict, cast

from agent_layer.errors import BackPressureError, CorruptRecordError, NotFoundError
from agent_layer.infra import ObjectStore
from agent_layer.schema import FINAL_STATUSES, Group, Trajectory, trajectory_owner
from agent_layer.store.consumers.claims import AckAnswer, Claim, Claims, Consumer, StreamPosition, keep_renewed
from agent_layer.store.index.index import Index
from agent_layer.store.reading.reader import read_trajectories

_MAX_ACKED = 65_536

log = logging.getLogger(__name__)

MAX_UNACKED = 1_024
"""Default for the number of groups that a member may hold unacknowledged."""

_LOOK_SECONDS = 0.5
"""Longest sleep between two polls; a commit ends it at once."""


class FollowOptions(TypedDict, total=False):
    """Options of ``Store.follow``."""

    wait_seconds: float | None
    """Seconds without a new group after which the iteration ends; None: never; 0: only groups that are ready."""
    stop: Callable[[], bool]
    """Called before each group and twice a second; True ends the iteration."""
    member: str
    """Which of the processes that share the consumer; 'auto' generates a name."""
    max_unacked: int | None
    """Unacknowledged groups after which the member waits; None: no limit."""
    wanted: Callable[[], str]
    """Called before each group: id of one to deliver next if the member holds it, also once more; empty: none."""


@dataclass(frozen=True)
class GroupDelivery:
    """One closed group with all of its accepted trajectories that were not deleted.

    No other member receives the group while this process references the delivery or its iterator.
    """

    group: Group
    trajectories: list[Trajectory]
    """[num_accepted], in member order; shorter than ``group.group_size`` when some rollouts died or were deleted."""
    ack: Callable[[], AckAnswer]
    """Acknowledge the group for all members. A late or repeated call counts, too."""
    is_held: Callable[[], bool] = lambda: True
    """Whether the member still holds the group: not after an acknowledgement, or after its claim lapsed."""
    unreadable: Sequence[str] = ()
    """Accepted trajectories that are left out because their stored bytes are damaged."""


class AckedGroups:
    """Newest groups that this process acknowledged for a consumer: a Redis that forgot it does not deliver them again.

    Args:
        max_size: number of groups that are remembered.
    """

    def __init__(self, max_size: int = _MAX_ACKED) -> None:
        self._group_ids: OrderedDict[str, None] = OrderedDict()
        self._max_size = max_size

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._group_ids

    def note(self, group_ids: Iterable[str]) -> None:
        """Remember groups that were acknowledged."""
        self._group_ids.update(dict.fromkeys(group_ids))
        while len(self._group_ids) > self._max_size:
            self._group_ids.popitem(last=False)


class Follower:
    """One member of a consumer: claims one group at a time, and reads none ahead."""

    def __init__(
        self, index: Index, objects: ObjectStore, consumer: Consumer, claim_seconds: float, acked: AckedGroups
    ) -> None:
        self._index = index
        self._objects = objects
        self._consumer = consumer
        self._claims = Claims(index.redis, index.keys, consumer, claim_seconds)
        self._has_joined = False
        self._again: deque[str] = deque()
        """Groups that the member holds and that this follower has not delivered."""
        self._is_full = False
        self._was_acked = Event()
        self._acked = acked

    def take(self, max_unacked: int | None = None, wanted: Callable[[], str] = lambda: "") -> Iterator[GroupDelivery]:
        """Yield the groups that are ready, without waiting: those already held first, then by time of closing.

        A group whose trajectories are not all in the index yet (while that is rebuilt) is left for later.

        Raises: LeaseLostError: another process follows under the member's name by now.
        """
        if not self._has_joined:
            self._again.extend(self._claims.join())
            self._has_joined = True
            keep_renewed(self._claims)
        behind, began, absent = None, time.monotonic(), ""
        while True:
            once_more = self._choose_again("" if (name := wanted()) == absent else name)
            claim = self._claim(once_more, max_unacked, behind)
            if claim is None and self._again:
                absent = once_more  # it was acknowledged meanwhile, or has not closed yet: the next one that is held
                continue
            if claim is None:
                return
            if claim.group.group_id in self._acked:
                self._again.popleft()
                self._claims.repeat_ack(claim.group.group_id)
                continue
            read = self._read(claim.group)
            self._again.popleft()
            if read is None:
                self._claims.postpone(claim.group.group_id)
                behind = behind if claim.group.group_id == once_more else claim.place
                continue
            yield self._deliver(claim.group, read)
            if time.monotonic() - began > _LOOK_SECONDS:
                behind, began = None, time.monotonic()

    def follow(
        self,
        wait_seconds: float | None,
        stop: Callable[[], bool],
        max_unacked: int | None,
        wanted: Callable[[], str] = lambda: "",
    ) -> Iterator[GroupDelivery]:
        """Yield groups as they close, until ``wait_seconds`` pass without one or ``stop`` returns True.

        Raises: BackPressureError: the member held ``max_unacked`` groups for ``wait_seconds``, and more were ready.
        """
        deadline = _deadline(wait_seconds)
        while not stop():
            redis, events = self._index.redis, self._index.keys.events
            newest = cast("list[tuple[bytes, object]]", redis.xrevrange(events, count=1))
            for delivery in self.take(max_unacked, wanted):
                yield delivery
                deadline = _deadline(wait_seconds)
                if stop():
                    return
            left_seconds = min(_LOOK_SECONDS, deadline - time.monotonic())
            if left_seconds < 0.001:  # Redis counts milliseconds, and 0 would mean for ever
                if self._is_full:
                    raise BackPressureError(
                        f"consumer {self._consumer.name!r} of run {self._consumer.run!r}: expected acknowledgements,"
                        f" but member {self._consumer.member!r} holds {max_unacked} groups without any; call ack() on"
                        " each, or raise max_unacked"
                    )
                return
            if self._is_full:
                self._was_acked.wait(left_seconds)
            else:
                redis.xread({events: newest[0][0] if newest else b"0-0"}, count=1, block=int(left_seconds * 1_000))

    def _choose_again(self, wanted: str) -> str:  # kept: its caller's limit
        """Return the group to claim once more: the wanted one, or the next that the member holds; empty: none."""
        if wanted:
            with suppress(ValueError):
                self._again.remove(wanted)
            self._again.appendleft(wanted)
        return self._again[0] if self._again else ""

    def _claim(self, again: str, max_unacked: int | None, behind: StreamPosition | None) -> Claim | None:
        """Claim the next group, again until it is read; None: there is none, or the member holds too many."""
        self._was_acked.clear()
        claim = self._claims.take(again, max_unacked, behind)
        if again:
            self._again.popleft()
        if claim == "full" and not self._is_full:
            who = self._consumer
            log.warning("member waits for acks consumer=%s member=%s num_held=%s", who.name, who.member, max_unacked)
        self._is_full = claim == "full"
        if not isinstance(claim, Claim):
            return None
        self._again.appendleft(claim.group.group_id)
        return claim

    def _read(self, group: Group) -> dict[str, Trajectory | None] | None:
        """Its trajectories without deleted ones, None for unreadable ones; or None when the index lacks one of them."""
        members = group.trajectory_ids
        kept = [
            one
            for one, is_dead in zip(members, self._index.are_deleted([*map(trajectory_owner, members)]), strict=True)
            if not is_dead
        ]
        rows = self._index.rows(kept)
        if len(rows) < len(kept) or not all(row.accepted and row.status in FINAL_STATUSES for row in rows):
            return None
        try:
            return dict(zip(kept, read_trajectories(self._index, self._objects, kept), strict=True))
        except CorruptRecordError:  # the others, and the groups behind this one, need not suffer for it
            return {one: self._read_alone(one) for one in kept}
        except NotFoundError:  # deleted since, or a rebuild has just begun: the next look will tell
            return None

    def _read_alone(self, trajectory_id: str) -> Trajectory | None:
        try:
            return read_trajectories(self._index, self._objects, [trajectory_id])[0]
        except (CorruptRecordError, NotFoundError) as error:
            log.critical("trajectory unreadable trajectory=%s error=%s", trajectory_id, error)
            return None

    def _deliver(self, group: Group, read: Mapping[str, Trajectory | None]) -> GroupDelivery:
        def ack() -> AckAnswer:
            answer = self._claims.ack(group.group_id)
            self._acked.note([group.group_id])
            self._was_acked.set()
            return answer

        return GroupDelivery(
            group=group,
            trajectories=[one for one in read.values() if one is not None],
            unreadable=[trajectory_id for trajectory_id, one in read.items() if one is None],
            ack=ack,
            is_held=lambda: self._claims.holds(group.group_id),
        )


def _deadline(wait_seconds: float | None) -> float:
    return float("inf") if wait_seconds is None else time.monotonic() + wait_seconds
