"""Tasks that are held out, and which of them a task repeats."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.schema.contamination.sketch import SketchIndex, sketch_text
from agent_layer.schema.contamination.text import read_task_text
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Record
from agent_layer.schema.task import Task, hash_input

NEAR: Final = 0.9
"""Least Jaccard index of 8-grams of two near-duplicates."""
REPOSITORY_LABEL: Final = "repository"
"""Label by which a task declares the repository that it is from."""

Holdout: TypeAlias = Literal["exact", "near"]
"""What a held-out set refuses. ``exact``: equal inputs, equal texts, its repositories; ``near``: near-duplicates too."""

MatchLevel: TypeAlias = Literal["input", "text", "repository", "near"]


class TaskFingerprint(Record, frozen=True, kw_only=True):
    """What a task is compared by; its id, limits and grading do not count."""

    input_hash: str
    """See ``hash_input``."""
    text_hash: str | None = None
    """Hash of its normalised text; None: it has none."""
    place_hash: str | None = None
    """Hash of environment, sandbox and seed, which tell tasks of one text apart."""
    repository: str | None = None
    """Repository that its label declares."""
    sketch: bytes = b""
    """See ``sketch_text``."""


class HeldOutTask(Record, frozen=True, kw_only=True):
    """One held-out task."""

    taskset: str
    """Name of its set."""
    task_id: str
    holdout: Holdout = "exact"
    fingerprint: TaskFingerprint


class HeldOutMatch(Record, frozen=True, kw_only=True):
    """The held-out task that a task repeats."""

    level: MatchLevel
    """By what: the first of these that holds."""
    taskset: str
    task_id: str | None = None
    """None: the set declares the repository itself."""
    similarity: float = 1.0
    """Jaccard index of 8-grams; 1.0 at the other levels."""
    is_refused: bool = True
    """False: a near-duplicate of a set that only has them listed."""

    def __str__(self) -> str:
        """Return it in words that follow the name of a task."""
        words = {"input": "has the input of", "text": "has the text of", "repository": "is from the repository of"}
        by = words.get(self.level) or f"has {self.similarity:.0%} of its 8-grams in common with"
        return f"{by} held-out {'set' if self.task_id is None else f'task {self.task_id} of'} {self.taskset}"


def fingerprint_task(task: Task) -> TaskFingerprint:
    """Return the fingerprint of a task; the same for audit, training and datasets."""
    text = read_task_text(task)
    place = msgspec.json.encode([task.env, task.sandbox, task.seed], order="deterministic")
    return TaskFingerprint(
        input_hash=hash_input(task),
        text_hash=content_hash(text.encode()) if text else None,
        place_hash=content_hash(place),
        repository=name_repository(task.labels.get(REPOSITORY_LABEL)),
        sketch=sketch_text(text),
    )


def name_repository(declared: str | None) -> str | None:
    """Return the name of a repository: in lower case, of an address its path alone; None: none is declared."""
    path = (declared or "").strip().lower().removesuffix("/").removesuffix(".git")
    return path.split("://")[-1].split("@")[-1].replace(":", "/").removeprefix("github.com/") or None


class HeldOutTasks:
    """Held-out tasks, to compare others with.

    A text that several held-out tasks share, such as *Mend the failing test*, tells nothing: environment, sandbox and
    seed must be equal, too.

    Args:
        tasks: held-out tasks.
        repositories: held out as a whole, by the name of the set that declares them.
    """

    def __init__(self, tasks: Iterable[HeldOutTask], repositories: Iterable[tuple[str, str]] = ()) -> None:
        self.tasks = list(tasks)
        self._inputs: dict[str, HeldOutTask] = {}
        self._texts: defaultdict[str, list[HeldOutTask]] = defaultdict(list)
        self._repositories: dict[str, HeldOutMatch] = {}
        for one in self.tasks:
            found = one.fingerprint
            self._inputs.setdefault(found.input_hash, one)
            if found.text_hash is not None:
                self._texts[found.text_hash].append(one)
            if found.repository is not None:
                self._repositories.setdefault(found.repository, _match("repository", one))
        for taskset, repository in repositories:
            if (name := name_repository(repository)) is not None:
                self._repositories.setdefault(name, HeldOutMatch(level="repository", taskset=taskset))
        self._refuses_near = any(one.holdout == "near" for one in self.tasks)

    def __bool__(self) -> bool:
        """Return whether anything is held out."""
        return bool(self.tasks or self._repositories)

    def find_match(self, task: Task | None, input_hash: str | None = None) -> HeldOutMatch | None:
        """Return the held-out task that a task repeats; a near-duplicate too, refused or not.

        Args:
            task: None: not known, so that only its input's hash can be compared.
            input_hash: of such a task.
        """
        return self._find(task, input_hash, looks_near=True)

    def find_refusal(self, task: Task | None, input_hash: str | None = None) -> HeldOutMatch | None:
        """Return the held-out task because of which a task may not be learned; see ``find_match``."""
        found = self._find(task, input_hash, looks_near=self._refuses_near)
        return found if found and found.is_refused else None

    def _find(self, task: Task | None, input_hash: str | None, *, looks_near: bool) -> HeldOutMatch | None:
        if task is None:
            same = self._inputs.get(input_hash or "")
            return _match("input", same) if same else None
        found = fingerprint_task(task) if self else None
        if found is None:
            return None
        if (same := self._inputs.get(found.input_hash)) is not None:
            return _match("input", same)
        if (same := self._find_text(found)) is not None:
            return _match("text", same)
        if (declared := self._repositories.get(found.repository or "")) is not None:
            return declared
        return self._find_near(found) if looks_near else None

    def _find_text(self, found: TaskFingerprint) -> HeldOutTask | None:
        same = self._texts.get(found.text_hash or "", [])
        if len({one.fingerprint.place_hash for one in same}) > 1:
            same = [one for one in same if one.fingerprint.place_hash == found.place_hash]
        return same[0] if same else None

    def _find_near(self, found: TaskFingerprint) -> HeldOutMatch | None:
        """Return the nearest of the near-duplicates, first of those that are refused."""
        best: tuple[bool, float, int] | None = None
        for at, similarity in self._sketches.find(found.sketch):
            one = self.tasks[at]
            if one.fingerprint.text_hash != found.text_hash:  # equal ones are texts that several tasks share
                best = max(best or (False, 0.0, 0), (one.holdout == "near", similarity, at))
        if best is None:
            return None
        is_refused, similarity, at = best
        return msgspec.structs.replace(_match("near", self.tasks[at]), similarity=similarity, is_refused=is_refused)

    @cached_property
    def _sketches(self) -> SketchIndex:
        return SketchIndex([one.fingerprint.sketch for one in self.tasks], NEAR)


def _match(level: MatchLevel, one: HeldOutTask) -> HeldOutMatch:
    return HeldOutMatch(level=level, taskset=one.taskset, task_id=one.task_id)
