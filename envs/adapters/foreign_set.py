"""Tasks that a foreign package plays and scores: its own loop asks our model, and its own rubric judges the answers.

    play    the package plays a task in a process of its own; each of its model calls goes through the gateway
    score   the package plays it once more, in the scorer's process; its calls are answered from the stored trajectory,
            in their order, and what it scores then is the verdict

So a grade depends on the stored answers alone. Where the package asks otherwise than it did, because its tools or its
prompts are not the same twice, nothing is judged.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import ClassVar, Final, cast

import msgspec
from aiohttp import ClientSession, ClientTimeout

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema import (
    Action,
    JsonObject,
    RewardSpec,
    Split,
    Step,
    Task,
    TaskView,
    as_json_object,
    as_json_objects,
    content_hash,
    new_id,
)
from envs.adapters.extras import read_options, run_apart
from envs.adapters.foreign_process import AnswerCall, AttemptEndedError, ForeignPackage, ask_foreign, ask_foreign_once
from envs.episode import Policy
from envs.grading import ScoringContext, Verdict, common_answers
from envs.tasksets import Script
from tracer.core import Rollout

PACKAGES: Final = {
    one.name: one
    for one in (
        ForeignPackage("verifiers", "verifiers", "verifiers_guest.py", max_runs=64),
        # their 'eval' runs once at a time in a process
        ForeignPackage("inspect", "inspect_ai", "inspect_guest.py", max_runs=1, variables={"INSPECT_DISPLAY": "none"}),
    )
}
_EVAL_EVERY: Final = 5
"""The last of this many tasks, by their number in the set, is of split eval."""
_BATCH: Final = 100
_POLICY: Final = "policy"
_LIST_SECONDS: Final = 600.0
_NO_LIMIT: Final = ClientTimeout(total=None)
_AGENT: Final = "envs.adapters.foreign_set:play"
_SCORER: Final = "envs.adapters.foreign_set:ForeignScorer"
_FORMS: Final = ("{}", "ANSWER: {}", "\\boxed{{{}}}", "<answer>{}</answer>")
_GOLD: Final = ("answer", "target", "solution", "label", "gold", "expected")
_FRAMES: Final = tuple(
    f"{before}{space}{{}}{space}{after}"
    for before, after, space in product(
        ("", "Step by step.\n\n", "I checked it twice.\n", "<think>Let me see.</think>\n"),
        ("", "\n\nThat is all.", "\n\n"),
        ("", "\n", " "),
    )
)[1:]
"""Other surroundings of an answer."""
_NUM_OTHERS: Final = 40
_NUM_MUTANTS: Final = 10
"""Number of mutants of each form."""


class _ListedTask(msgspec.Struct):
    """A task as its package lists it."""

    index: int
    key: str
    """The same as long as the task is."""
    messages: list[JsonObject]
    """First messages to the policy, as far as they are known."""
    grading: object = None


class _Listing(msgspec.Struct):
    tasks: list[_ListedTask]
    version: str


class _Part(msgspec.Struct):
    score: float
    weight: float


class _Played(msgspec.Struct):
    """How a package ended a task."""

    reward: float | None = None
    parts: dict[str, _Part] = {}
    metrics: dict[str, float] = {}
    stop: str | None = None


class _Place(msgspec.Struct):
    """Where a task is from."""

    set: str
    index: int
    key: str


class ForeignSet:
    """Tasks of a package of others, with its own rubric. Contract: ``TaskSet``.

    Seed 0 has the package's own order, other seeds other orders. Every fifth task is of split eval. There is one level.

    Args:
        package: what has them.
        name: as the package names them, with options behind a question mark: ``gsm8k?difficulty=hard``.
    """

    levels = range(1)
    agent = _AGENT
    partial = True

    def __init__(self, package: ForeignPackage, name: str) -> None:
        self.name = f"{package.name}:{name}"
        self._package = package
        self._taskset = _read_name(self.name)

    @cached_property
    def version(self) -> str:
        """Versions of the package, and of what brings the tasks.

        Raises: BadInputError: there is no such set, or it cannot be carried.
        """
        return self._list(0, 0, 1).version

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks; None as count: all that there are.

        Raises: BadInputError: there is no such level, or a task cannot be carried.
        """
        if level not in self.levels or seed < 0:
            raise BadInputError(f"task set {self.name!r}: expected level 0 and a seed of 0 or more")
        start = num_given = 0
        while count is None or num_given < count:
            listed = self._list(seed, start, _BATCH).tasks
            for one in listed:
                is_eval = one.index % _EVAL_EVERY == _EVAL_EVERY - 1
                if is_eval == (split == "eval") and num_given != count:
                    num_given += 1
                    yield self._make_task(one, split)
            if len(listed) < _BATCH:
                return
            start += _BATCH

    def solve(self, task: Task) -> Script:
        """Return the answer that the grading names, in the form that scores most; an empty one if it names none."""
        best, reward = Script(name="reference"), 0.0
        for form in _FORMS:
            for text in _find_gold(task.grading):
                script = _reply("reference", form.format(text))
                if (earned := self._earned(task, script)) > reward:
                    best, reward = script, earned
        return best

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return the reference in other surroundings, those that the package takes: it alone knows what is right."""
        found = self.solve(task)
        for reply in found.replies:
            text = str(reply["content"])
            scripts = [_reply(f"frame {number}", frame.format(text)) for number, frame in enumerate(_FRAMES)]
            earned = self._earned(task, found)
            return [script for script in scripts if self._earned(task, script) == earned]
        return []

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return the answers of other tasks."""
        own = set(_find_gold(task.grading))
        others = dict.fromkeys(
            text for one in self._list(0, 0, _NUM_OTHERS).tasks for text in _find_gold(one.grading) if text not in own
        )
        return [
            _reply(f"other {number}", form.format(text))
            for number, text in enumerate(list(others)[:_NUM_MUTANTS])
            for form in _FORMS
        ]

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return answers without any work, the prompt itself among them."""
        prompt = "\n".join(str(one.get("content")) for one in as_json_objects(as_json_object(task.input)["messages"]))
        return [_reply(name, text) for name, text in common_answers(prompt).items()]

    def _list(self, seed: int, start: int, count: int) -> _Listing:
        request: JsonObject = {"taskset": self._taskset, "seed": seed, "start": start, "count": count}
        return msgspec.convert(ask_foreign_once(self._package, "list", request, _LIST_SECONDS), _Listing)

    def _make_task(self, listed: _ListedTask, split: Split) -> Task:
        place = {"set": self.name, "index": listed.index, "key": listed.key}
        return Task(
            id=f"{self._package.name}-{content_hash(f'{self.name} {listed.key}'.encode())}",
            run=self._package.name,
            split=split,
            task_type=self._package.name,
            input={**place, "messages": listed.messages},
            grading=listed.grading,
            agent=self.agent,
            scorer=_SCORER,
            rewards={"reward": RewardSpec()},
        )

    def _earned(self, task: Task, script: Script) -> float:
        steps = [
            Step(trajectory_id="", call_id=str(place), choice=0, run="", started_at=0.0, action=Action(message=reply))
            for place, reply in enumerate(script.replies)
        ]
        return run_apart(_Replay(steps).play(task.input)).reward or 0.0


def open_verifiers(name: str) -> ForeignSet:
    """Return a task set of verifiers, by the name of its package: ``gsm8k-v1``, or ``gsm8k-v1?task.strict=true``."""
    return ForeignSet(PACKAGES["verifiers"], name)


def open_inspect(name: str) -> ForeignSet:
    """Return a task of inspect_ai: ``FILE.py@TASK``, or the name that an installed package registers."""
    return ForeignSet(PACKAGES["inspect"], name)


async def play(task: TaskView, rollout: Rollout) -> object:
    """Let the package play a task with our model; return why it stopped.

    Raises:
        ModelCallError: the gateway refused a call, for example because the task's limits are reached.
        BadInputError: the task cannot be carried, or is no longer what it was.
        AgentFailedError: the package's code failed. UnreachableError: its process ended.
    """
    async with ClientSession(timeout=_NO_LIMIT) as client:
        policy = Policy(client, rollout, [])

        async def answer(role: str, body: JsonObject) -> JsonObject:
            if role != _POLICY:
                raise AgentFailedError(f"task {task.id!r}: asks a judge while it is played; only scorers may")
            return msgspec.json.decode(await policy.complete(body, new_id()), type=JsonObject)

        return {"stop": (await _run(task.input, answer, is_scored=False)).stop}


class ForeignScorer:
    """The package's own rubric, over the stored answers. Its whole reward is ``reward``; its parts are beside it."""

    version: ClassVar[str] = "1"

    async def score(self, context: ScoringContext) -> Verdict:
        """Play the task again with the stored answers.

        Raises:
            BadInputError: the task cannot be carried, or is no longer what it was.
            AgentFailedError: the package's code failed. UnreachableError: its process ended.
        """
        steps = [step for step in context.trajectory.steps if step.role == _POLICY and step.action.message]
        replay = _Replay(steps, context)
        played = await replay.play(context.task.input)
        if (drift := replay.drift) is not None:
            return Verdict(status="verifier_error", evidence={"error": drift})
        if played.reward is None:
            return Verdict(status="verifier_error", evidence={"error": "the package gave no reward"})
        parts = {name: part.score for name, part in played.parts.items()}
        weights = {name: part.weight for name, part in played.parts.items()}
        return Verdict(
            scores={**played.metrics, **parts, "reward": played.reward},
            evidence={"parts": parts, "weights": weights, "stop": played.stop},
        )


class _Replay:
    """Answers the calls of a package from stored steps, in their order.

    Args:
        steps: of the policy.
        context: asks judges; None: there are none.
    """

    def __init__(self, steps: Sequence[Step], context: ScoringContext | None = None) -> None:
        self._steps = steps
        self._context = context
        self._num_given = 0
        self._is_comparable = True
        """Prompts were stored as they are sent, so that their hashes can be compared."""
        self.drift: str | None = None
        """Where the package asked otherwise than it did; None: nowhere."""

    async def play(self, place: object) -> _Played:
        """Play a task to its end. Raises as ``ask_foreign``."""
        played = await _run(place, self._answer, is_scored=True)
        if self._num_given < len(self._steps) and self.drift is None:
            self.drift = f"the package ended after {self._num_given} of {len(self._steps)} stored answers"
        return played

    async def _answer(self, role: str, body: JsonObject) -> JsonObject:
        if role != _POLICY:
            return await self._judge(body)
        if self._num_given == len(self._steps):
            raise AttemptEndedError("the attempt ended here")
        step = self._steps[self._num_given]
        self._compare(step, body)
        self._num_given += 1
        message = step.action.message or {}
        default = "tool_calls" if message.get("tool_calls") else "stop"
        return _completion({"content": None, **message, "role": "assistant"}, step.action.finish_reason or default)

    async def _judge(self, body: JsonObject) -> JsonObject:
        if self._context is None:
            raise AttemptEndedError("there is no judge here")
        sampling = {name: value for name, value in body.items() if name != "messages"}
        text = await self._context.ask(as_json_objects(body.get("messages")), **sampling)
        return _completion({"role": "assistant", "content": text}, "stop")

    def _compare(self, step: Step, body: JsonObject) -> None:
        """Compare the last message of the prompt with the stored one, if the first answer's was stored as it is."""
        stored = step.state.messages or []
        sent = as_json_objects(body.get("messages"))
        is_same = bool(stored) and bool(sent) and stored[-1] == content_hash(json.dumps(sent[-1]).encode())
        if self._num_given == 0:
            self._is_comparable = is_same
        elif self._is_comparable and not is_same and self.drift is None:
            self.drift = f"before answer {self._num_given + 1} the package asked otherwise than in the rollout"


def _completion(message: JsonObject, finish_reason: str) -> JsonObject:
    return {
        "id": new_id(),
        "object": "chat.completion",
        "created": 0,
        "model": _POLICY,
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }


async def _run(place: object, answer: AnswerCall, *, is_scored: bool) -> _Played:
    try:
        found = msgspec.convert(place, _Place)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task: expected one of an adapter, {error}; write it with 'tasksets write'") from error
    prefix = found.set.partition(":")[0]
    if prefix not in PACKAGES:
        raise BadInputError(f"task set {found.set!r}: expected one of {', '.join(PACKAGES)}; correct the task's input")
    request: JsonObject = {
        "taskset": _read_name(found.set),
        "index": found.index,
        "key": found.key,
        "is_scored": is_scored,
    }
    return msgspec.convert(await ask_foreign(PACKAGES[prefix], "run", request, answer), _Played)


def _read_name(name: str) -> JsonObject:
    """Return what a name says: ``PACKAGE:ID?option=value&part.option=value``.

    Raises: BadInputError: an option is the ID, or a part of another.
    """
    identity, options = read_options(name.partition(":")[2])
    for option in options:
        if option.partition(".")[0] == "id" or any(other.startswith(f"{option}.") for other in options):
            raise BadInputError(f"task set {name!r}: option {option!r} cannot be given so; correct the name")
    taskset: JsonObject = {"id": identity}
    for option, value in options.items():
        *outer, last = option.split(".")
        place = taskset
        for part in outer:
            place = cast("JsonObject", place.setdefault(part, {}))
        place[last] = value
    return taskset


def _find_gold(grading: object) -> Iterator[str]:
    """Yield texts that the grading names as the answer."""
    known = as_json_object(grading)
    for name in _GOLD:
        value = known.get(name)
        found = cast("list[object]", value)[:1] if isinstance(value, list) else [value]
        yield from (str(one) for one in found if isinstance(one, str | int | float))


def _reply(name: str, text: str) -> Script:
    return Script(name=name, replies=[{"role": "assistant", "content": text}])
