"""This file holds which groups somebody still waits for: open ones, and those that a consumer has not acknowledged."""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from agent_layer.schema.codec import decode
from agent_layer.schema.group import Group
from agent_layer.store.index import Index

__all__ = ["Readers", "Standing"]

Standing: TypeAlias = Literal["open", "unread"]


class _Reader(NamedTuple):
    consumer: str
    splits: frozenset[str] | None
    """None: not known, so any."""


class Readers:
    """Consumers that ever acknowledged a group of a run, or that have a place in it."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._by_run: dict[str, list[_Reader]] = {}

    def standing_of(self, group_ids: Iterable[str]) -> dict[str, Standing]:
        """Of these groups, those that are not closed, and those that some reader has not acknowledged."""
        asked = sorted(set(group_ids))
        pipeline = self._index.pipeline()
        for group_id in asked:
            pipeline.get(self._index.keys.group(group_id))
            pipeline.exists(self._index.keys.queue("g", group_id))
        told = pipeline.execute()
        groups: list[Group] = []
        standing: dict[str, Standing] = {}
        for group_id, stored, is_queued in zip(asked, told[::2], told[1::2], strict=True):
            if isinstance(stored, bytes) and isinstance(group := decode(stored), Group):
                groups.append(group)
            elif is_queued:  # open, or closed so lately that its record is on its way
                standing[group_id] = "open"
        for group_id in self._unread(groups):
            standing[group_id] = "unread"
        return standing

    def _unread(self, groups: Iterable[Group]) -> Iterator[str]:
        questions = [
            (group, self._index.keys.acked(group.run, reader.consumer))
            for group in groups
            for reader in self._readers(group.run)
            if reader.splits is None or group.split in reader.splits
        ]
        pipeline = self._index.pipeline()
        for group, acked in questions:
            pipeline.sismember(acked, group.group_id)
        for (group, _), is_acked in zip(questions, cast("list[int]", pipeline.execute()), strict=True):
            if not is_acked:
                yield group.group_id

    def _readers(self, run: str) -> list[_Reader]:
        if run not in self._by_run:
            self._by_run[run] = list(self._find_readers(run))
        return self._by_run[run]

    def _find_readers(self, run: str) -> Iterator[_Reader]:
        feeds = cast("dict[bytes, bytes]", self._index.redis.hgetall(self._index.keys.feeds(run)))
        splits: dict[str, set[str]] = {}
        for feed in feeds:
            consumer, _, split = feed.decode().rpartition(":")
            splits.setdefault(consumer, set()).add(split)
        prefix = self._index.keys.acked(run, "")
        found = self._index.redis.scan_iter(match=f"{prefix}*", count=1_000)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  # untyped in redis-py
        consumers = {key.decode().removeprefix(prefix) for key in cast("Iterator[bytes]", found)} | splits.keys()
        for consumer in sorted(consumers):
            yield _Reader(consumer, frozenset(splits[consumer]) if consumer in splits else None)
