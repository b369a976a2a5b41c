"""Claims of consumers on closed groups: typed functions around Lua scripts, and the thread that renews them.

At most one member of a consumer holds a group. Each call is one atomic step; the shared clock counts. The cost of a
call does not grow with the number of closed or acknowledged groups (0.1 ms at 1,000,000): a feed walks through the
closed groups once, in order, and sets aside only those before its position that it still has to deliver. In Redis, an
acknowledged group takes 75 bytes.
"""

import logging
import time
import weakref
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec
from redis import Redis
from redis.commands.core import Script
from redis.exceptions import RedisError

from agent_layer.errors import BadInputError, CorruptRecordError, LeaseLostError
from agent_layer.infra import Keys, SharedClock, batched, durable_writes
from agent_layer.schema import Group, Split, check_name, decode, new_id
from agent_layer.store.consumers.scripts import ACK, JOIN, POSTPONE, RENEW, TAKE

AckAnswer: TypeAlias = Literal["acked", "late", "again"]
"""acked: the group was this member's. late: it counts, but the claim had lapsed, so that another member may have
worked on the group too. again: it was acknowledged before; nothing changed."""

ONLY_MEMBER = "only"
"""Name of the only member of a consumer."""

_BATCH_GROUPS = 256
"""Largest number of groups that one script call acknowledges; more would block Redis for longer."""

_ALL_SPLITS = ",".join(get_args(Split))

_NO_TIME = 0
"""Estimate of a script call that compares no times."""

log = logging.getLogger(__name__)

_PER_CLAIM = 3
"""Renewals before claims lapse: two may fail."""


class Consumer(msgspec.Struct, frozen=True):
    """A consumer of one run, and its member. Acknowledgements are stored under its name and run.

    Raises: BadInputError: its name or its member's cannot stand in a key.
    """

    name: str
    run: str
    split: Split | None = "train"
    """None: both."""
    member: str = ONLY_MEMBER
    """Which of the processes that share the consumer."""

    def __post_init__(self) -> None:
        for subject, name in (("consumer", self.name), ("member", self.member)):
            if ":" in check_name(name, subject):
                raise BadInputError(f"{subject} {name!r}: expected a name without ':', found one; choose another name")

    @property
    def splits(self) -> str:
        """As the scripts read it."""
        return self.split or _ALL_SPLITS


class StreamPosition(NamedTuple):
    """Position of a group in the order of closing."""

    closed_at: str
    """Time as Redis writes it."""
    group_id: str


class Claim(NamedTuple):
    """A group that the member now holds."""

    group: Group
    place: StreamPosition


class Claims:
    """Claims of one member of a consumer, from its first ``join`` until another process joins under its name."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        consumer: Consumer,
        claim_seconds: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.claim_seconds = claim_seconds
        self._consumer = consumer
        self._session = new_id()
        self._num_turns = 0
        self._prefix = keys.name()
        self._clock = SharedClock(redis, keys, monotonic=monotonic)
        self._join = JOIN.load(redis)
        self._take = TAKE.load(redis)
        self._renew = RENEW.load(redis)
        self._postpone = POSTPONE.load(redis)
        self._ack = ACK.load(redis)
        self._redis, self._durable = redis, durable_writes(redis, keys)

    def join(self) -> list[str]:
        """Take over the member's name; return the groups that it already holds, by time of closing."""
        flat = cast("list[bytes]", self._call(self._join))
        held = sorted(
            (float(closed_at), group.decode()) for group, closed_at in zip(flat[::2], flat[1::2], strict=True)
        )
        return [group for _, group in held]

    def take(self, again: str, most: int | None, behind: StreamPosition | None) -> Claim | Literal["none", "full"]:
        """Claim the unclaimed group that closed first.

        Args:
            again: a group to return first, if the member still holds it; or empty.
            most: largest number of groups that the member may hold; None: any number.
            behind: skips waiting groups up to this position.

        Raises: LeaseLostError: another process has joined under the member's name.
        """
        self._num_turns += 1  # a repeated turn returns the same group, if the client lost the answer and sends it again
        arguments = [self._num_turns, again, -1 if most is None else most, *(behind or ("", ""))]
        while True:
            match cast("list[bytes]", self._call(self._take, *arguments)):
                case [b"more"]:
                    continue
                case [b"superseded"]:
                    raise self._superseded()
                case [_, group_id, closed_at, record]:
                    return Claim(_decode_group(record), StreamPosition(closed_at.decode(), group_id.decode()))
                case answer:
                    return "full" if answer == [b"full"] else "none"

    def renew(self) -> bool:
        """Renew the member's claims; False when another process has joined under its name."""
        return self._call(self._renew, "") != -1

    def holds(self, group_id: str) -> bool:
        """Whether the member still holds the group."""
        return self._call(self._renew, group_id) == 1

    def postpone(self, group_id: str) -> None:
        """Put back a group that cannot be delivered yet."""
        self._call(self._postpone, group_id)

    def ack(self, group_id: str) -> AckAnswer:
        """Acknowledge a group, for all members and for good."""
        answers: list[bytes] = []
        self._durable.complete(
            self._redis, lambda: answers.extend(cast("list[bytes]", self._call(self._ack, group_id)))
        )
        return cast("AckAnswer", answers[0].decode())

    def repeat_ack(self, group_id: str) -> None:
        """Acknowledge a group once more, without a wait: a Redis that forgets it again delivers the group again."""
        self._call(self._ack, group_id)

    def _call(self, script: Script, *arguments: str | int) -> object:
        who = self._consumer
        about = [who.run, who.name, who.member, self._session, round(self.claim_seconds * 1_000), who.splits]
        return cast("object", script(keys=[self._prefix], args=[*about, *arguments, self._clock.estimate_ms()]))

    def _superseded(self) -> LeaseLostError:
        who = self._consumer
        return LeaseLostError(
            f"consumer {who.name!r} of run {who.run!r}: this process lost the member {who.member!r}, because another"
            " process follows under the same name and has its groups now; give each process a member name of its own"
        )


def acknowledge(redis: Redis, keys: Keys, consumer: Consumer, group_ids: Sequence[str]) -> None:
    """Acknowledge groups, no matter which member holds them; twice does no harm."""
    ack, about = ACK.load(redis), [consumer.run, consumer.name, consumer.member, "", 0, _ALL_SPLITS]

    def acknowledge_all() -> None:
        for page in batched(group_ids, _BATCH_GROUPS):
            ack(keys=[keys.name()], args=[*about, *page, _NO_TIME])

    durable_writes(redis, keys).complete(redis, acknowledge_all)


def _decode_group(record: bytes) -> Group:
    if isinstance(group := decode(record), Group):
        return group
    raise CorruptRecordError(
        f"group index: expected groups, found {type(group).__name__}; run 'agent-layer store check'"
    )


def keep_renewed(claims: Claims) -> None:
    """Renew claims until no reference to them is left, or until another process takes the member's name."""
    ended = Event()
    weakref.finalize(claims, ended.set)
    seconds = claims.claim_seconds / _PER_CLAIM
    Thread(target=_renew, args=(weakref.ref(claims), ended, seconds), name="renew-claims", daemon=True).start()


def _renew(reference: "weakref.ref[Claims]", ended: Event, seconds: float) -> None:
    while not ended.wait(seconds):
        if not _renew_once(reference):
            return


def _renew_once(reference: "weakref.ref[Claims]") -> bool:
    claims = reference()
    if claims is None:
        return False
    try:
        return claims.renew()
    except RedisError as error:
        log.warning("claims not renewed, they lapse in %g s error=%s", claims.claim_seconds, error)
        return True
