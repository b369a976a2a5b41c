"""Rounds: one evaluation of one model on one set of tasks, stored as one small object beside the trajectories."""

from collections.abc import Iterator

import msgspec

from agent_layer.errors import BadInputError, CorruptRecordError, NotFoundError
from agent_layer.infra import ObjectStore
from agent_layer.schema import JsonObject, check_name, make_group_id
from envs.costs import Price
from envs.evaluation.figures.figures import Figures, RoundSettings, TaskRef, TaskResult

_RUN_PREFIX = "eval."
_MAX_NAME_LENGTH = 96
"""Leaves room for the prefix within the name of a run."""


class EvaluatedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What ran."""

    target: str | None
    """``module:attribute`` or a registered name; None: a command."""
    command: list[str] = []
    command_options: list[str] = []
    """Options of the worker that say how the command runs, as its command line has them."""
    version: str | None = None
    """Hash of its file, or of the files that the command and its templates have; None: not known."""


class EvaluatedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What answered."""

    kind: str
    """``none``: the agent calls no model. ``engine``: with token ids. ``endpoint``: of another party, as text."""
    name: str | None = None
    """Name of the model at its server."""
    location: str | None = None
    """Directory of its weights, address of an endpoint, or script."""
    fingerprint: str | None = None
    """Hash of weights or script; None: they cannot be read from here."""
    policy_version: int | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    """Parsers of the vLLM that was started with it, 'none' for none; None: it ran already, or is no vLLM."""


class TaskSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tasks come from."""

    name: str
    """Name of a task set, or path of a file or folder."""
    version: str | None = None
    """Version of a task set."""
    split: str = "eval"
    seed: int = 0
    level: int = 0
    limit: int | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round as it is stored."""

    name: str
    agent: EvaluatedAgent
    model: EvaluatedModel
    asked_model: str | None = None
    """Model as the caller named it; None: what was configured."""
    source: TaskSource
    tasks: list[TaskRef]
    tasks_hash: str
    """Hash of ids, inputs and gradings."""
    yardstick: RoundSettings
    sampling: JsonObject
    scorer: str
    """Scorer for tasks that name none."""
    price: Price | None
    """Price of the model, as the caller gave it."""
    started_at: float
    """Seconds since the epoch, UTC."""
    only_version: int | None = None
    """Policy version of every rollout that counts; None: each counts."""
    version: int = 1
    """Version of this form."""
    ended_at: float | None = None
    num_passes: int = 0
    """How often rollouts were submitted: each pass asks for what is missing."""
    replaced: dict[str, int] = {}
    """Last pass, by task id, whose rollouts no longer count, because what they measured has changed since."""
    figures: Figures | None = None
    results: list[TaskResult] = []
    """[num_tasks]; empty before the first figures."""

    @property
    def run(self) -> str:
        """Run of its rollouts."""
        return f"{_RUN_PREFIX}{self.name}"

    def list_groups(self, task_id: str) -> Iterator[str]:
        """Yield the groups of a task that count, one for each pass."""
        for number in range(self.replaced.get(task_id, 0) + 1, self.num_passes + 1):
            yield make_group_id(self.run, task_id, number)

    @property
    def replaced_groups(self) -> set[str]:
        """Groups that no longer count."""
        passes = ((task_id, range(1, last + 1)) for task_id, last in self.replaced.items())
        return {make_group_id(self.run, task_id, number) for task_id, numbers in passes for number in numbers}

    @property
    def state(self) -> str:
        """``complete``, ``incomplete``, or ``running``, which a killed one remains."""
        if self.figures is None or self.ended_at is None:
            return "running"
        return "complete" if self.figures.is_complete else "incomplete"


class RoundStore:
    """The rounds of one namespace.

    Args:
        objects: of the store.
        namespace: of the settings.
    """

    def __init__(self, objects: ObjectStore, namespace: str) -> None:
        self._objects = objects
        self._prefix = f"{namespace}/rounds/"

    def write(self, one: Round) -> None:
        """Store a round; replaces what is stored of it."""
        self._objects.put(self._key(one.name), msgspec.json.encode(one))

    def find(self, name: str) -> Round | None:
        """Return a round; None: there is none of this name.

        Raises: CorruptRecordError: what is stored is no round.
        """
        try:
            stored = self._objects.get(self._key(name))
        except NotFoundError:
            return None
        try:
            return msgspec.json.decode(stored, type=Round)
        except msgspec.DecodeError as error:
            raise CorruptRecordError(
                f"round {name!r}: expected the record of a round, found {error}; evaluate again under another name"
            ) from error

    def get(self, name: str) -> Round:
        """Return a round.

        Raises: BadInputError: there is none of this name.
        """
        if found := self.find(name):
            return found
        raise BadInputError(f"round {name!r}: expected a stored one, found none; 'agent-layer eval --list' shows them")

    def list(self) -> list[Round]:
        """Return all rounds, oldest first."""
        names = [key.removeprefix(self._prefix).removesuffix(".json") for key in self._objects.list(self._prefix)]
        return sorted((self.get(name) for name in names), key=lambda one: (one.started_at, one.name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}.json"


def check_round_name(name: str) -> str:
    """Return the name of a round if it can be one.

    Raises: BadInputError: it cannot.
    """
    if len(name) > _MAX_NAME_LENGTH:
        raise BadInputError(
            f"round {name[:20]}…: expected at most {_MAX_NAME_LENGTH} characters; choose a shorter name"
        )
    return check_name(name, "round")


def check_same(stored: Round, requested: Round) -> None:
    """Check that a round can go on as it is asked for now.

    Raises: BadInputError: it is another; the error names the first difference.
    """
    for what, before, now in _differences(stored, requested):
        if before != now:
            raise BadInputError(
                f"round {stored.name!r}: expected {what} {_shown(before)}, with which it began, found {_shown(now)};"
                " repeat that, add --changed to redo what it touches, or begin another round with --round NAME"
            )


def take_changes(stored: Round, requested: Round) -> tuple[Round, list[str]]:
    """Return the requested round in which what the changes touch is redone, and a sentence for each change.

    A task that asks or grades otherwise touches its own rollouts, -n and --threshold none, all else every rollout.
    """
    found = [one for one in _differences(stored, requested) if one[1] != one[2]]
    touches_all = any(what not in _TOUCH_NOT_ALL for what, _, _ in found)
    known = {task.id: task.content_hash for task in stored.tasks}
    touched = [
        task.id
        for task in requested.tasks
        if found and task.id in known and (touches_all or known[task.id] != task.content_hash)
    ]
    sentences = [f"{what}: {_shown(before)}, now {_shown(now)}" for what, before, now in found]
    if touched:
        sentences.append(f"all rollouts of {len(touched)} of {len(requested.tasks)} tasks are redone")
    replaced = stored.replaced | dict.fromkeys(touched, stored.num_passes)
    return msgspec.structs.replace(requested, replaced=replaced), sentences


_TOUCH_NOT_ALL = ("-n", "--threshold", "the number of tasks", "tasks with hash")


def _differences(stored: Round, requested: Round) -> list[tuple[str, object, object]]:
    before, now = stored.model, requested.model
    has_both = before.fingerprint is not None and now.fingerprint is not None
    return [
        ("the agent", _name_agent(stored), _name_agent(requested)),
        ("the agent in version", stored.agent.version, requested.agent.version),
        ("a model of kind", before.kind, now.kind),
        ("the model", before.name, now.name),
        *(
            [("the model with fingerprint", before.fingerprint, now.fingerprint)]
            if has_both
            else [("the model at", before.location, now.location)]
        ),
        ("policy version", before.policy_version, now.policy_version),
        *(
            [
                ("--tool-parser", before.tool_parser, now.tool_parser),
                ("--reasoning-parser", before.reasoning_parser, now.reasoning_parser),
            ]
            if before.tool_parser is not None
            else []  # a round of an earlier release, or no vLLM of ours
        ),
        ("-n", stored.yardstick.n, requested.yardstick.n),
        ("--threshold", stored.yardstick.threshold, requested.yardstick.threshold),
        ("sampling", stored.sampling, requested.sampling),
        ("--scorer", stored.scorer, requested.scorer),
        ("the task set in version", stored.source.version, requested.source.version),
        ("the number of tasks", len(stored.tasks), len(requested.tasks)),
        ("tasks with hash", stored.tasks_hash, requested.tasks_hash),
    ]


def _name_agent(one: Round) -> str:
    return one.agent.target or " ".join([*one.agent.command_options, "--", *one.agent.command])


def _shown(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
