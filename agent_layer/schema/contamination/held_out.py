"""Tasks that are held out, and which of them a task repeats."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.schema.contamination.sketch import SketchIndex, sketch_text
from agent_layer.schema.contamination.text import read_task_text
from agent_layer.schema.ids import content_hash
from agent_layer.schema.record import Record
from agent_layer.schema.task import Task, explain_depth, hash_input

NEAR: Final = 0.9
"""Least Jaccard index of 8-grams of two near-duplicates."""
REPOSITORY_LABEL: Final = "repository"
"""Label by which a task declares the repository that it is from."""

_ADDRESS: Final = re.compile(r"^(?:[a-z+]+://)?(?:[^/@]*@)?")
"""Scheme and user of an address."""
_REVISION: Final = re.compile("@.*")
HOLDOUT_LABEL: Final = "holdout"
"""Label by which a task declares what its set refuses."""

Holdout: TypeAlias = Literal["exact", "near"]
"""What a held-out set refuses. ``exact``: equal inputs and texts, its repositories; ``near``: near-duplicates too."""

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


class HeldOutSet(Record, frozen=True, kw_only=True):
    """Tasks that are held out together."""

    name: str
    holdout: Holdout = "exact"
    repositories: list[str] = []
    """Repositories that are held out, beside those that its tasks declare."""
    tasks: dict[str, TaskFingerprint] = {}
    """Fingerprints by task id."""


class HeldOutMatch(Record, frozen=True, kw_only=True):
    """The held-out task that a task repeats."""

    level: MatchLevel
    """The first of these that holds."""
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


class LeftOutTask(Record, frozen=True, kw_only=True):
    """A task of a source that is not trained, because it repeats a held-out one; a line of a run's left_out.jsonl."""

    source: str
    task_id: str
    match: HeldOutMatch


class AuditVerdict(Record, frozen=True, kw_only=True):
    """What the last audit of a run's checkpoints found; the run's audit.json."""

    step: int
    """Updates behind the checkpoint."""
    audited_at: float
    """Seconds since the epoch, UTC."""
    is_proven: bool
    """Whether no held-out task was learned, and everything could be compared."""
    num_held_out: int
    num_learned: int
    """Held-out tasks that were learned."""
    num_near: int
    """Near-duplicates that their sets do not refuse."""
    learned_share: float | None
    """Part of all trained tokens that taught held-out tasks; None: no numbers of tokens are known."""


def fingerprint_task(task: Task, *, has_sketch: bool = True) -> TaskFingerprint:
    """Return the fingerprint of a task; the same for audit, training and datasets.

    Args:
        task: to compare.
        has_sketch: False: without a sketch, which takes most of the time.
    """
    input_hash, text = hash_input(task), read_task_text(task)
    place = msgspec.json.encode([task.env, task.sandbox, task.seed], order="deterministic")
    return TaskFingerprint(
        input_hash=input_hash,
        text_hash=content_hash(text.encode()) if text else None,
        place_hash=content_hash(place),
        repository=name_repository(task.labels.get(REPOSITORY_LABEL)),
        sketch=sketch_text(text) if has_sketch else b"",
    )


def name_repository(declared: str | None) -> str | None:
    """Return the name of a repository: in lower case, of an address its path alone, without revision; None: none."""
    found = _REVISION.sub("", _ADDRESS.sub("", (declared or "").strip().lower())).rstrip("/").removesuffix(".git")
    return found.replace(":", "/").removeprefix("github.com/") or None


def hold_out(
    name: str, tasks: Iterable[Task], *, holdout: Holdout | None = None, repositories: Sequence[str] = ()
) -> HeldOutSet:
    """Return a held-out set.

    Args:
        name: of the set.
        tasks: of the set.
        holdout: what it refuses; None: near-duplicates where the label of a task says so.
        repositories: held out, beside those that tasks declare.
    """
    found = list(tasks)
    is_near = any(task.labels.get(HOLDOUT_LABEL) == "near" for task in found)
    return HeldOutSet(
        name=name,
        holdout=holdout or ("near" if is_near else "exact"),
        repositories=list(repositories),
        tasks={task.id: fingerprint_task(task) for task in found},
    )


class HeldOutTasks:
    """Held-out tasks, to compare others with.

    An input or text that several held-out tasks share, such as *Mend the failing test*, tells nothing by itself:
    environment, sandbox and seed must be equal, too.

    Args:
        sets: of held-out tasks.
    """

    def __init__(self, sets: Iterable[HeldOutSet]) -> None:
        self.sets = list(sets)
        self._tasks = [(one, task_id, found) for one in self.sets for task_id, found in one.tasks.items()]
        self._same: defaultdict[tuple[MatchLevel, str], list[tuple[str | None, HeldOutMatch]]] = defaultdict(list)
        """(place, match) by hash of input or text."""
        self._repositories: dict[str, HeldOutMatch] = {}
        self._latest: tuple[bytes, bool, HeldOutMatch | None] | None = None
        """The last task, because the rollouts of a group share one: (its bytes, whether near was looked for, match)."""
        for one, task_id, found in self._tasks:
            match = HeldOutMatch(level="input", taskset=one.name, task_id=task_id)
            self._same["input", found.input_hash].append((found.place_hash, match))
            if found.text_hash is not None:
                same = msgspec.structs.replace(match, level="text")
                self._same["text", found.text_hash].append((found.place_hash, same))
            if found.repository is not None:
                same = msgspec.structs.replace(match, level="repository")
                self._repositories.setdefault(found.repository, same)
        for one in self.sets:
            for name in filter(None, map(name_repository, one.repositories)):
                self._repositories.setdefault(name, HeldOutMatch(level="repository", taskset=one.name))

    def __len__(self) -> int:
        """Return the number of held-out tasks."""
        return len(self._tasks)

    def find_match(self, task: Task | None, input_hash: str | None = None) -> HeldOutMatch | None:
        """Return the held-out task that a task repeats; a near-duplicate too, refused or not.

        Args:
            task: None: not known, so that only its input's hash can be compared.
            input_hash: of such a task.
        """
        return self._find(task, input_hash, looks_near=True)

    def find_refusal(self, task: Task | None, input_hash: str | None = None) -> HeldOutMatch | None:
        """Return the held-out task that keeps a task from being learned; see ``find_match``."""
        refuses_near = any(one.holdout == "near" for one in self.sets)
        found = self._find(task, input_hash, looks_near=refuses_near)
        return found if found and found.is_refused else None

    def _find(self, task: Task | None, input_hash: str | None, *, looks_near: bool) -> HeldOutMatch | None:
        if task is None:
            return next((match for _, match in self._same.get(("input", input_hash or ""), ())), None)
        if not (self._tasks or self._repositories):
            return None
        try:
            content = msgspec.msgpack.encode(task)  # tasks with the inputs 1 and True are equal, their bytes are not
        except RecursionError as error:
            raise explain_depth(task) from error
        if self._latest is None or self._latest[:2] != (content, looks_near):
            self._latest = (content, looks_near, self._compare(task, looks_near=looks_near))
        return self._latest[2]

    def _compare(self, task: Task, *, looks_near: bool) -> HeldOutMatch | None:
        found = fingerprint_task(task, has_sketch=looks_near)
        return (
            self._find_same("input", found.input_hash, found.place_hash)
            or self._find_same("text", found.text_hash or "", found.place_hash)
            or self._repositories.get(found.repository or "")
            or (self._find_near(found) if looks_near else None)
        )

    def _find_same(self, level: MatchLevel, content: str, place: str | None) -> HeldOutMatch | None:
        same = self._same.get((level, content), ())
        is_shared = len({own for own, _ in same}) > 1
        return next((match for own, match in same if not is_shared or own == place), None)

    def _find_near(self, found: TaskFingerprint) -> HeldOutMatch | None:
        """Return the nearest of the near-duplicates, first of those that are refused."""
        near = [
            (one.holdout == "near", similarity, -at)
            for at, similarity in self._sketches.find(found.sketch)
            for one, _, held in [self._tasks[at]]
            if held.text_hash != found.text_hash  # equal ones are texts that several tasks share
        ]
        if not near:
            return None
        is_refused, similarity, at = max(near)
        one, task_id, _ = self._tasks[-at]
        return HeldOutMatch(
            level="near", taskset=one.name, task_id=task_id, similarity=similarity, is_refused=is_refused
        )

    @cached_property
    def _sketches(self) -> SketchIndex:
        return SketchIndex([found.sketch for _, _, found in self._tasks], NEAR)
