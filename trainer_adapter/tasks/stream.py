"""The sequence of a run's tasks: which task each position submits.

    position ──▶ schedule: which source ──▶ its next task ──▶ filters ──▶ draw (source, level, index)
                     ▲ weights of the mix                        │ not admitted, or held out: the next one
                                                                 ◀─┘

A draw depends on the seed, on the draws before it, and, with filters and ramps, on what was learned. It is in the
journal before it is submitted and in the checkpoint afterwards, so a run that is stopped or killed anywhere goes on
with the same sequence.
"""

import logging
import random
from collections.abc import Mapping, Sequence

from agent_layer.errors import BadInputError
from agent_layer.schema import Task
from trainer_adapter.selection import MAX_SUCCESSES, TaskFilter
from trainer_adapter.tasks.held_out import HeldOutFilter
from trainer_adapter.tasks.journal import DrawJournal, JournalEntry
from trainer_adapter.tasks.mix import MixFile
from trainer_adapter.tasks.schedule import choose_source
from trainer_adapter.tasks.source import TaskSource
from trainer_adapter.tasks.state import Draw, StreamState

log = logging.getLogger(__name__)

_MIN_TURNS = 10_000
"""Tasks that filters may leave out in a row, or one epoch where that is more."""


class TaskStream:
    """Draws the tasks of one run.

    Args:
        sources: by name.
        state: of the checkpoint.
        mix: weights, as the user changes them.
        journal: draws since the checkpoint.
        filters: all must admit a task.
        held_out: must admit it, too; None: nothing is held out.
        seed: of the turns in which filters are passed over.

    Raises: BadInputError: the file of a source is not the one of the checkpoint.
    """

    def __init__(  # noqa: PLR0913  # its parts
        self,
        sources: Sequence[TaskSource],
        state: StreamState,
        *,
        mix: MixFile,
        journal: DrawJournal,
        filters: Sequence[TaskFilter] = (),
        held_out: HeldOutFilter | None = None,
        seed: int = 0,
    ) -> None:
        self._held_out = held_out
        self._sources = {source.name: source for source in sources}
        self._mix, self._journal, self._filters, self._seed = mix, journal, filters, seed
        self._configured = {source.name: source.config.weight for source in sources}
        if not sum(self._configured.values()) > 0:
            raise BadInputError("tasks: expected a source with a weight above 0, found none; raise one")
        mix.begin(self._configured)
        self._weights = dict(state.weights)
        self._counts = dict(state.counts)
        self._next = dict(state.next_indices)
        self._levels = {source.name: state.levels.get(source.name, source.first_level) for source in sources}
        self._successes = {name: list(found) for name, found in state.successes.items() if name in self._sources}
        self._digests = dict(state.digests)
        for source in sources:
            self._check_file(source, self._levels[source.name])

    @property
    def num_tasks(self) -> int:
        """Number of tasks of all sources, at their present levels."""
        return sum(len(source.file(self._levels[name])) for name, source in self._sources.items())

    def read(self, draw: Draw) -> Task:
        """Return the task of a draw.

        Raises: BadInputError: its source is no longer in the configuration, or its file was changed.
        """
        if (source := self._sources.get(draw.source)) is None:
            raise BadInputError(
                f"tasks: expected the source {draw.source!r}, whose tasks were submitted before, found"
                f" {', '.join(self._sources)}; name it again, with weight 0 to end it"
            )
        return source.read(draw.level, draw.index)

    def draw(self, position: int, rates: Mapping[str, float]) -> Draw:
        """Draw the task of the next position.

        Args:
            position: counted from 0; each is drawn once, in order.
            rates: recent success rates by task id.

        Raises: BadInputError: filters admit no task of a source, or a file was changed.
        """
        if (known := self._journal.recall(position)) is not None and known.draw.source in self._sources:
            self._take(known.draw, known.weights)
            return known.draw
        weights = self._mix.poll()
        changed = weights if weights != self._weights else None
        source = self._sources[choose_source(weights, {} if changed else self._counts)]
        draw = self._admit(source, self._levels[source.name], rates)
        self._journal.append(JournalEntry(position=position, draw=draw, weights=changed))
        self._take(draw, changed)
        return draw

    def observe(self, draw: Draw, success: float) -> None:
        """Let the ramp of a source see the success of a group that was trained."""
        source = self._sources.get(draw.source)
        if source is None or source.config.ramp is None or draw.level != self._levels[draw.source]:
            return
        seen = self._successes.setdefault(draw.source, [])
        seen.append(success)
        del seen[:-MAX_SUCCESSES]
        if draw.level < source.last_level and source.config.ramp.rises(seen):
            self._raise_level(source, draw.level + 1)

    def state(self) -> StreamState:
        """Return the position of the sequence."""
        return StreamState(
            weights=dict(self._weights),
            counts=dict(self._counts),
            next_indices=dict(self._next),
            levels=dict(self._levels),
            successes={name: list(found) for name, found in self._successes.items()},
            digests=dict(self._digests),
        )

    def forget_draws(self) -> None:
        """Forget the draws in the journal that were made: a checkpoint with ``state`` is on disk."""
        self._journal.forget()

    def _take(self, draw: Draw, changed_weights: dict[str, float] | None) -> None:
        """Move on by one draw."""
        if changed_weights is not None:
            self._weights, self._counts = dict(changed_weights), {}
        if draw.level > self._levels[draw.source]:  # as the trainer that was killed had come to
            self._raise_level(self._sources[draw.source], draw.level)
        self._counts[draw.source] = self._counts.get(draw.source, 0) + 1
        self._next[_key(draw.source, draw.level)] = draw.index + 1

    def _raise_level(self, source: TaskSource, level: int) -> None:
        self._levels[source.name] = level
        self._check_file(source, level)
        self._successes.pop(source.name, None)
        log.info("source %s: level %d", source.name, level)

    def _admit(self, source: TaskSource, level: int, rates: Mapping[str, float]) -> Draw:
        """Return the first of the next tasks of a source that the filters admit."""
        first = self._next.get(_key(source.name, level), 0)
        num_turns = max(_MIN_TURNS, len(source.file(level))) if self._filters or self._held_out else 1
        num_refused, example = 0, ""
        for index in range(first, first + num_turns):
            task = source.read(level, index)
            if not self._is_admitted(task, rates, f"{self._seed} {source.name} {level} {index}"):
                continue
            if self._held_out is not None and not self._held_out.admits(task, source.name, level):
                num_refused += 1
                example = example or f", such as {task.id}, which {self._held_out.held_out.find_refusal(task)}"
            else:
                return Draw(source=source.name, level=level, index=index, task_id=task.id)
        raise BadInputError(
            f"source {source.name!r}: expected a task to train, found none among {num_turns:,} in a row: filters left"
            f" out {num_turns - num_refused:,}, and {num_refused:,} repeat held-out tasks{example}; widen the filters,"
            " hold out other tasks than those that are trained, or give the source weight 0"
        )

    def _is_admitted(self, task: Task, rates: Mapping[str, float], turn: str) -> bool:
        return all(
            one.admits(task, rates.get(task.id)) or random.Random(f"{turn} {at}").random() < one.retry
            for at, one in enumerate(self._filters)
        )

    def _check_file(self, source: TaskSource, level: int) -> None:
        """Check that a file is the one of the checkpoint, because indices in another name other tasks."""
        key, digest = _key(source.name, level), source.file(level).digest
        if self._digests.setdefault(key, digest) != digest:
            raise BadInputError(
                f"source {source.name!r}: expected the tasks with which this run began, but they were changed; restore"
                " them, give the source another name to begin it again, or train as another run (AGENT_LAYER_RUN)"
            )


def _key(source: str, level: int) -> str:
    return f"{source}/{level}"
