"""Closings of groups, followed at once from a stream that keeps about the newest thousand.

A reader that may have missed more than that asks for every group that could have closed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias, cast

from redis import Redis
from redis.exceptions import AskError, ConnectionError as RedisConnectionError, TimeoutError as RedisTimeoutError

from agent_layer.dispatcher.inspection import QueueInspector
from agent_layer.dispatcher.models import GroupState
from agent_layer.dispatcher.scripts import Scripts
from agent_layer.errors import NotFoundError
from agent_layer.infra import batched, open_async_redis

_Entries: TypeAlias = list[tuple[bytes, dict[bytes, bytes]]]
_Streams: TypeAlias = list[tuple[bytes, _Entries]]

_BLOCK_SECONDS = 1.0
"""Longest wait for the stream; then the reader reaps lapsed leases, in case no worker is left to do it."""
_MAX_ENTRIES = 1024
_ROWS = 128
"""Groups that one page reads and yields."""
_MAX_RECENT = 1 << 16
"""Newest groups of a run that are remembered as yielded."""
_KNOWN_SECONDS = 8 * 86_400
"""Seven days for which the dispatcher knows closed groups, and a day more."""
_SLACK_SECONDS = 2.0
"""Largest difference between the time of a stream's entry and its group's ``closed_at``."""


class StreamRead(NamedTuple):
    """What one read of the stream returned."""

    newest_id: str
    """Entry after which the next read goes on."""
    closings: list[tuple[str, str]]
    """(group id, run), in order of closing."""
    is_whole: bool
    """False: the stream dropped entries that this reader had not read."""


class GroupFilter(Protocol):
    """Which groups are followed."""

    @property
    def is_over(self) -> bool:
        """No other group will come."""
        ...

    def closed_already(self) -> Iterator[list[GroupState]]:
        """Yield those that have closed."""
        ...

    def closed_since(self, after_id: str, read: StreamRead) -> Iterator[list[GroupState]]:
        """Yield those that have closed since, none a second time."""
        ...


class NamedGroups:
    """Certain groups."""

    def __init__(self, scripts: Scripts, group_ids: Sequence[str]) -> None:
        self._scripts, self._inspector = scripts, QueueInspector(scripts)
        self._left = dict.fromkeys(group_ids)

    @property
    def is_over(self) -> bool:
        """See ``GroupFilter``."""
        return not self._left

    def closed_already(self) -> Iterator[list[GroupState]]:
        """See ``GroupFilter``.

        Raises: NotFoundError: the dispatcher does not know one.
        """
        yield from self._ask(list(self._left))

    def closed_since(self, after_id: str, read: StreamRead) -> Iterator[list[GroupState]]:  # noqa: ARG002  # others need it
        """See ``GroupFilter``."""
        named = [group_id for group_id, _ in read.closings if group_id in self._left]
        yield from self._ask(named if read.is_whole else list(self._left))

    def _ask(self, group_ids: list[str]) -> Iterator[list[GroupState]]:
        for part in batched(group_ids, _ROWS):
            states = self._scripts.complete(lambda part=part: self._inspector.groups(part, _ROWS))
            if lacking := [one for one in part if one not in {state.group_id for state in states}]:
                raise NotFoundError(
                    f"group {lacking[0]}: expected one that was submitted, found none; the dispatcher forgets groups"
                    " a week after they closed"
                )
            closed = [state for state in states if state.is_closed]
            for state in closed:
                del self._left[state.group_id]
            yield closed


class RunGroups:
    """All groups of a run, the earlier ones as far as the dispatcher knows them."""

    is_over = False

    def __init__(self, scripts: Scripts, run: str) -> None:
        self._redis, self._keys, self._scripts = scripts.redis, scripts.keys, scripts
        self._inspector = QueueInspector(scripts)
        self._run = run
        self._given: dict[str, None] = {}

    def closed_already(self) -> Iterator[list[GroupState]]:
        """See ``GroupFilter``."""
        yield from self._since(self._inspector.stats().now - _KNOWN_SECONDS)

    def closed_since(self, after_id: str, read: StreamRead) -> Iterator[list[GroupState]]:
        """See ``GroupFilter``."""
        if not read.is_whole:
            yield from self._since(_order(after_id)[0] / 1000 - _SLACK_SECONDS)
        yield from self._give(group_id for group_id, run in read.closings if run == self._run)

    def _since(self, seconds: float) -> Iterator[list[GroupState]]:
        """Read the outbox first: a closed group stays in it until the index has it."""
        decided = list(self._decided_since(seconds))
        yield from self._give(self._indexed_since(seconds))
        yield from self._give(iter(decided))

    def _decided_since(self, seconds: float) -> Iterator[str]:
        redis, keys, after = self._redis, self._keys, f"{max(0, round(seconds * 1000))}"
        while entries := cast("_Entries", redis.xrange(keys.outbox, after, count=_MAX_ENTRIES)):
            for _, fields in entries:
                if fields[b"kind"] == b"group" and fields[b"run"].decode() == self._run:
                    yield fields[b"group_id"].decode()
            after = f"({entries[-1][0].decode()}"

    def _indexed_since(self, seconds: float) -> Iterator[str]:
        redis, name, at = self._redis, self._keys.closed_groups(self._run), 0
        while page := self._page(redis, name, seconds, at):
            yield from (group_id.decode() for group_id in page)
            at += len(page)

    @staticmethod
    def _page(redis: Redis, name: str, seconds: float, at: int) -> list[bytes]:
        found = redis.zrange(  # pyright: ignore[reportUnknownMemberType]  # its scores may be of any type
            name, seconds, "+inf", byscore=True, offset=at, num=_MAX_ENTRIES
        )
        return cast("list[bytes]", found)

    def _give(self, group_ids: Iterator[str]) -> Iterator[list[GroupState]]:
        for part in batched((one for one in group_ids if one not in self._given), _ROWS):
            self._given |= dict.fromkeys(part)
            yield self._scripts.complete(lambda part=part: self._inspector.groups(part, _ROWS))
        for one in list(islice(self._given, max(0, len(self._given) - _MAX_RECENT))):
            del self._given[one]


async def follow(scripts: Scripts, groups: GroupFilter) -> AsyncGenerator[GroupState, None]:
    """Yield each group once, as it closes, until no other group will come.

    Raises:
        NotFoundError: the dispatcher does not know one of the named groups.
        UnreachableError: Redis did not answer for ``retry_seconds``.
    """
    name = scripts.keys.queue("closed")
    async with await asyncio.to_thread(open_async_redis, scripts.settings) as connection:
        newest_id = await asyncio.to_thread(newest_closed, scripts.redis, name)
        pages = groups.closed_already()
        while True:
            while (page := await asyncio.to_thread(next, pages, None)) is not None:
                for state in page:
                    yield state
            if groups.is_over:
                return
            await asyncio.to_thread(scripts.reap)
            try:
                found = await connection.xread(
                    {name: newest_id}, count=_MAX_ENTRIES, block=round(_BLOCK_SECONDS * 1000)
                )
                first = await connection.xrange(name, count=1)
            except (RedisConnectionError, RedisTimeoutError, AskError, OSError):
                # while Redis is away, the retrying client waits for it, and raises when it stays away; in a cluster it
                # finds the node to which the slot has moved
                await asyncio.to_thread(scripts.redis.exists, name)
                read = StreamRead(newest_id, [], is_whole=False)
            else:
                read = _parse_closings(newest_id, cast("_Streams", found), cast("_Entries", first))
            pages, newest_id = groups.closed_since(newest_id, read), read.newest_id


def newest_closed(redis: Redis, name: str) -> str:
    """Return the id of the stream's newest entry."""
    found = cast("_Entries", redis.xrevrange(name, count=1))
    return found[0][0].decode() if found else "0-0"


def read_closings(redis: Redis, name: str, after_id: str, seconds: float) -> StreamRead:
    """Wait until groups close, for a second at most."""
    block_ms = max(1, round(min(seconds, _BLOCK_SECONDS) * 1000))
    found = cast("_Streams", redis.xread({name: after_id}, count=_MAX_ENTRIES, block=block_ms))
    return _parse_closings(after_id, found, cast("_Entries", redis.xrange(name, count=1)))


def _parse_closings(after_id: str, found: _Streams, first: _Entries) -> StreamRead:
    entries = found[0][1] if found else []
    oldest_id = first[0][0].decode() if first else after_id
    return StreamRead(
        newest_id=entries[-1][0].decode() if entries else after_id,
        closings=[(fields[b"group_id"].decode(), fields[b"run"].decode()) for _, fields in entries],
        is_whole=not entries or _order(oldest_id) <= _order(after_id),
    )


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number)
