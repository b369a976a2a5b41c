"""Entries of the store's streams, gathered for a moment and told once, however many name the same thing."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from agent_layer.view.answers.events import Change, ChangeKind

MAX_IDS: Final = 100
_KINDS: Final[Mapping[bytes, tuple[ChangeKind, bytes]]] = {
    b"trajectory": ("trajectory", b"trajectory_id"),
    b"addition": ("trajectory", b"trajectory_id"),
    b"deleted": ("trajectory", b"trajectory_id"),
    b"group": ("group", b"group_id"),
    b"update": ("update", b"step"),
    b"policy": ("run", b"run"),
}
"""Kind of an entry → kind of the change, field with the id."""


class Gathered:
    """What changed since it was last taken."""

    def __init__(self) -> None:
        self._ids: defaultdict[ChangeKind, dict[str, None]] = defaultdict(dict)
        self._runs: defaultdict[ChangeKind, set[str]] = defaultdict(set)

    def add(self, kind: ChangeKind, name: str, run: str = "") -> None:
        """Add one thing."""
        self._ids[kind][name] = None
        if run:
            self._runs[kind].add(run)

    def add_event(self, fields: Mapping[bytes, bytes]) -> None:
        """Add an entry of the store's events; a kind that is not known here changes nothing on a page."""
        if (known := _KINDS.get(fields.get(b"kind", b""))) is None:
            return
        kind, field = known
        name, run = fields.get(field, b"").decode(), fields.get(b"run", b"").decode()
        self.add(kind, f"{run}/{name}" if kind == "update" else name, run)

    def add_steps(self, fields: Mapping[bytes, bytes]) -> None:
        """Add an entry of the stream of steps."""
        for name, run in cast("list[list[str]]", msgspec.msgpack.decode(fields.get(b"grown", b"\x90"))):
            self.add("step", name, run)

    def take(self) -> list[Change]:
        """Return the changes, and start again."""
        found = [
            Change(kind=kind, runs=sorted(self._runs[kind]), ids=list(ids)[:MAX_IDS], num=len(ids))
            for kind, ids in self._ids.items()
        ]
        self._ids.clear()
        self._runs.clear()
        return found
