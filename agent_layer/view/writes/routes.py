"""The table of writing routes, and how an order is carried out: planned, noted, done, noted again."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeVar

import msgspec

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import JsonObject, new_id
from agent_layer.view.reads.routes import Route
from agent_layer.view.writes.commands import (
    MAX_NAMED,
    DrainOrder,
    DropOrder,
    LabelOrder,
    PauseOrder,
    ResumeOrder,
    RetryOrder,
    RewardOrder,
    ShareOrder,
    WriteCommand,
    WriteTargets,
)
from agent_layer.view.writes.exports import EXPORTS, ExportOrder
from agent_layer.view.writes.journal import Journal, WriteLine, WriteList, list_writes

WRITES: Final[Mapping[str, type[WriteCommand]]] = {
    "/trajectories/{trajectory}/rewards": RewardOrder,
    "/trajectories/{trajectory}/labels": LabelOrder,
    "/runs/{run}/pause": PauseOrder,
    "/runs/{run}/resume": ResumeOrder,
    "/runs/{run}/share": ShareOrder,
    "/workers/{worker}/drain": DrainOrder,
    "/dead/retry": RetryOrder,
    "/dead/drop": DropOrder,
}
"""Body of each POST, by its path below the prefix. The answer is a ``WriteLine``."""
JOURNAL_ROUTES: Final = (Route("/writes", list_writes, WriteList, ("limit",)),)
"""Routes that read the journal."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class Writer(NamedTuple):
    """Who writes."""

    name: str
    address: str | None


class Writes:
    """Carries out orders. Call it for one at a time, so that what was there before is what the last one left."""

    def __init__(self, targets: WriteTargets, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self._desk = targets
        self._journal = journal
        self._clock = clock

    def take(self, route: str, body: bytes, path: Mapping[str, str], writer: Writer) -> WriteLine:
        """Carry out the order of a body, between two entries of the journal.

        Raises: AgentLayerError: it cannot be carried out; then nothing is changed, or the journal says what failed.
        """
        plan = _read_body(route, body, WRITES[route]).plan(self._desk, path)
        line = self._begin(route, writer, plan.subject, plan.before)
        try:
            done = msgspec.structs.replace(line, after=plan.apply())
        except AgentLayerError as error:
            self._journal.record(msgspec.structs.replace(line, error=str(error)))
            raise
        self._journal.record(done)
        self._journal.prune()
        log.info("view wrote action=%s subject=%r by=%r", done.action, done.subject, done.by)
        return done

    def export(self, route: str, body: bytes, writer: Writer) -> Iterator[bytes]:
        """Return the lines of an export, which the journal names.

        Raises: AgentLayerError: as the lines are read, or the body is not one of this route.
        """
        ids = _read_body(route, body, ExportOrder).trajectories
        subject, num = ", ".join(ids[:MAX_NAMED]), {"num_trajectories": len(ids)}
        lines = EXPORTS[route](self._desk.store, ids)
        first = next(lines, b"")  # what cannot be read is refused before a byte is sent
        self._journal.record(msgspec.structs.replace(self._begin(route, writer, subject, {}), after=num))
        self._journal.prune()
        return chain([first], lines)

    def _begin(self, route: str, writer: Writer, subject: str, before: JsonObject) -> WriteLine:
        line = WriteLine(
            id=new_id(),
            at=self._clock(),
            by=writer.name,
            address=writer.address,
            action=route.rpartition("/")[2],
            subject=subject,
            before=before,
        )
        self._journal.record(line)
        return line


def _read_body(route: str, body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadInputError(f"body of {route}: expected {kind.__name__} as JSON: {error}; correct it") from error
