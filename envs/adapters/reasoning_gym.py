"""reasoning-gym: its generated task sets, named ``reasoning-gym:NAME`` or ``reasoning-gym:NAME?option=value``.

The package draws and scores in processes of its own (``forked_calls.py``), so that its answers to equal seeds are equal
on every machine, and no answer of a policy disturbs a worker.

What an answer without knowledge earns (nothing, forgeries, the question itself) is declared with each task as its
floor, and subtracted from ``score_answer``: (score - floor) / (1 - floor), never below 0.

Some of its scorers evaluate an answer as Python: such an answer could run a program, and read what is expected. While
one scores, an audit hook of the process refuses all evaluation but that of formulas, in calls of helpers, too.
"""

import dis
import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import metadata
from itertools import count as count_from, islice, product
from types import CodeType, FrameType
from typing import Final, Protocol, TypeAlias, cast

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema import JsonObject, Split, Task, Trajectory, content_hash
from envs.adapters.extras import check_extra, import_extra, read_options
from envs.adapters.forked_calls import call_forked
from envs.grading import Verdict, common_answers, final_answer, only_reward, zero_scores
from envs.tasksets import Script

_EXTRA: Final = "reasoning-gym"
_PACKAGE: Final = "reasoning_gym"
_OWN_VERSION: Final = "1"
_CHUNK: Final = 100
"""Entries of one seed of theirs. Entry i of seed s is often entry i - 1 of seed s + 1, so seeds are hashes."""
_BATCH: Final = 10
"""Entries that one call makes; divides the chunk."""
_EVAL_SHARE: Final = 4
"""One question in this many is of split eval, by its hash, so that no question is in both."""
_MAX_MISSES: Final = 400
"""Entries in a row that are of the other split, or were there before, after which a set has no more."""
_NUM_MUTANTS: Final = 20
_DRAW_SECONDS: Final = 600
_INSTRUCTION: Final = (
    "\n\nThink step by step. Then write the answer between <answer> and </answer>, and nothing else between them, in"
    " the form that the question asks for."
)
_ANSWER: Final = "<answer>{}</answer>"
_FRAMES: Final = tuple(
    before + _ANSWER.format(f"{space}{{}}{space}") + after
    for before, space, after in product(
        ("", "Step by step.\n", "<think>a < b</think>\n\n", "<answer>a draft</answer> No: ", "```\ncode\n```\n"),
        ("", "\n"),
        ("", "\n", "\nThat is all."),
    )
)[1:21]
"""Other surroundings of an answer."""
_BOMBS: Final = {"bomb": "9**9**9**9", "factorial": "9**9!"}
"""Forgeries that take for ever where they are evaluated."""
_VARIABLE: Final = re.compile(r"[A-Za-z]\d*")
_PLAIN_NAMES: Final = frozenset({"Float", "Function", "Integer", "Rational", "Symbol", "abs", "pi", "sqrt"})
"""Names in formulas, as sympy writes them, that are no functions of sympy's."""

_Entry: TypeAlias = Mapping[str, object]


class _Dataset(Protocol):
    def __getitem__(self, index: int) -> _Entry: ...
    def score_answer(self, answer: str | None, entry: _Entry) -> float: ...


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one seed."""

    dataset: str
    options: JsonObject
    seed: int


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an entry; the rest of it has types that JSON has not, and is made again to score."""

    question: str
    answer: str
    """The package's own, which is one of several right ones in many sets."""
    floor: float
    """What an answer without knowledge earns of the package; 1: the entry is no task, its own answer is not scored."""


class _Grading(_Chunk, frozen=True, kw_only=True):
    """Form of ``task.grading``."""

    index: int
    answer: str
    floor: float


def open_set(text: str) -> "ReasoningGym":
    """Return the task set ``NAME`` or ``NAME?option=value``.

    Raises: BadInputError: the package is not installed, or has no such set or option.
    """
    name, options = read_options(text)
    check_extra(_PACKAGE, _EXTRA)
    if taken := options.keys() & {"seed", "size"}:
        raise BadInputError(f"task set {_EXTRA}:{name}: {min(taken)!r} is the task set's own; leave it out")
    found = ReasoningGym(name, options, f"{_EXTRA}:{text}")
    try:
        _draw_rows(_Chunk(dataset=name, options=options, seed=0), 0)
    except AgentFailedError as error:
        raise BadInputError(f"task set {_EXTRA}:{text}: makes no task; correct name or options: {error}") from error
    return found


class ReasoningGym:
    """Generated questions of one set of reasoning-gym. Contract: ``TaskSet``.

    Args:
        dataset: the package's name of the set.
        options: fields of its configuration, in place of their defaults.
        name: under which the set is found again.
    """

    levels = range(1)
    agent = "envs:ToolEnvironment"
    partial = True

    def __init__(self, dataset: str, options: JsonObject, name: str) -> None:
        self.name = name
        self.version = f"{metadata.version(_EXTRA)}-{_OWN_VERSION}"
        self._dataset, self._options = dataset, options

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield tasks, each question once; a set with few questions ends.

        Raises: BadInputError: no such level exists.
        """
        if level not in self.levels:
            raise BadInputError(f"task set {self.name!r}: expected level 0, found {level}; its options change it")
        return islice(self._draw_tasks(split, seed), count)

    def _draw_tasks(self, split: Split, seed: int) -> Iterator[Task]:
        seen, misses = set[str](), 0
        for number in count_from():
            place, index = divmod(number, _CHUNK)
            their_seed = int(content_hash(f"{seed} {place}".encode())[:7], 16)
            chunk = _Chunk(dataset=self._dataset, options=self._options, seed=their_seed)
            row = _draw_rows(chunk, index // _BATCH)[index % _BATCH]
            digest = _hash(row.question)
            is_eval = int(digest[:8], 16) % _EVAL_SHARE == 0
            if row.floor >= 1 or digest in seen or is_eval != (split == "eval"):
                misses += 1
                if misses > _MAX_MISSES:
                    return
                continue
            seen.add(digest)
            misses = 0
            yield Task(
                id=f"{_EXTRA}.{self._dataset}-{digest[:16]}",
                run="tasks",
                split=split,
                task_type=f"{_EXTRA}.{self._dataset}",
                input=row.question + _INSTRUCTION,
                grading={**msgspec.to_builtins(chunk), "index": index, "answer": row.answer, "floor": row.floor},
                scorer=f"{__name__}:score",
            )

    def solve(self, task: Task) -> Script:
        """Return the package's own answer."""
        return _reply("reference", _ANSWER.format(_read_grading(task).answer))

    def rewrites(self, task: Task) -> Sequence[Script]:
        """Return the same answer in other surroundings."""
        answer = _read_grading(task).answer
        return [_reply(f"frame-{number}", frame.format(answer)) for number, frame in enumerate(_FRAMES)]

    def mutants(self, task: Task) -> Sequence[Script]:
        """Return answers to other questions."""
        own = _read_grading(task)
        chunk = _Chunk(dataset=own.dataset, options=own.options, seed=own.seed)
        near = [(own.index + step) % _CHUNK for step in range(1, _NUM_MUTANTS + 1)]
        others = dict.fromkeys(_draw_rows(chunk, index // _BATCH)[index % _BATCH].answer for index in near)
        return [
            _reply(f"other-{number}", _ANSWER.format(one)) for number, one in enumerate(others) if one != own.answer
        ]

    def cheats(self, task: Task) -> Sequence[Script]:
        """Return forgeries of an answer, and what a scorer that evaluates it would not survive."""
        return [_reply(name, _ANSWER.format(text)) for name, text in _list_forgeries(str(task.input)).items()]


def score(task: Task, trajectory: Trajectory, result: object) -> Verdict:
    """Return what the package's ``score_answer`` makes of the answer, without the floor of the task.

    The answer stands between the last tags of the agent's last text, as the package's own runner reads it. One that
    ends the package's scorer earns 0.

    Raises: AgentFailedError: the package makes another entry now, or its process failed: no judgement.
    """
    grading = _read_grading(task)
    request = msgspec.to_builtins(msgspec.structs.replace(grading, answer=_hash(grading.answer)))  # a request is short
    called = call_forked(f"{__name__}:prepare", request, final_answer(trajectory, result))
    if called.error is not None:
        return Verdict(scores=zero_scores(task), evidence={"error": called.error})
    found = min(max(float(cast("float", called.value)), 0.0), 1.0)
    above = max(0.0, (found - grading.floor) / (1 - grading.floor))
    return Verdict(scores={only_reward(task): above}, evidence={"score_answer": found, "floor": grading.floor})


@lru_cache(256)
def _draw_batch(chunk: bytes, number: int) -> list[_Row]:
    called = call_forked(
        f"{__name__}:prepare", msgspec.json.decode(chunk), number, cpu_seconds=_DRAW_SECONDS, seconds=2 * _DRAW_SECONDS
    )
    if called.error is not None:
        raise AgentFailedError(f"task set {_EXTRA}: drawing tasks failed, {called.error}; correct its options")
    return msgspec.convert(called.value, list[_Row])


def _draw_rows(chunk: _Chunk, number: int) -> list[_Row]:
    return _draw_batch(msgspec.json.encode(chunk), number)


def _read_grading(task: Task) -> _Grading:
    return msgspec.convert(task.grading, _Grading)


def _hash(text: str) -> str:
    return content_hash(text.encode())


def _list_forgeries(prompt: str) -> dict[str, str]:
    return {**common_answers(prompt), **_BOMBS}


def _reply(name: str, text: str) -> Script:
    return Script(name=name, replies=[{"role": "assistant", "content": text}])


def prepare(request: JsonObject) -> Callable[[object], object]:
    """Return what scores a text for a ``_Grading`` with hashed answer, and what draws a batch of a ``_Chunk``.

    Raises: BadInputError: the package has no such set, or makes another entry of this seed than it did for the task.
    """
    chunk = msgspec.convert(request, _Chunk)
    dataset = _open_dataset(msgspec.json.encode(chunk))
    if "index" not in request:
        return lambda number: [
            _describe_entry(dataset, dataset[cast("int", number) * _BATCH + place]) for place in range(_BATCH)
        ]
    grading = msgspec.convert(request, _Grading)
    entry = dataset[grading.index]
    if _hash(str(entry["answer"])) != grading.answer:
        raise BadInputError(
            f"task set {_EXTRA}:{grading.dataset}: seed {grading.seed} makes another entry {grading.index} than when"
            f" the task was drawn; install the version of {_EXTRA} that drew it"
        )
    extract = cast("Callable[[str], str | None]", import_extra(f"{_PACKAGE}.utils", _EXTRA).extract_answer)
    return lambda text: _score_text(dataset, extract(str(text)), entry)


@lru_cache(16)
def _open_dataset(encoded: bytes) -> _Dataset:
    chunk = msgspec.json.decode(encoded, type=_Chunk)
    known = cast("dict[str, object]", import_extra(f"{_PACKAGE}.factory", _EXTRA).DATASETS)
    if chunk.dataset not in known:
        raise BadInputError(f"expected a set among {', '.join(sorted(known))}, found {chunk.dataset!r}; choose one")
    make = import_extra(_PACKAGE, _EXTRA).create_dataset
    return cast("_Dataset", make(chunk.dataset, **{**chunk.options, "seed": chunk.seed, "size": _CHUNK}))


def _describe_entry(dataset: _Dataset, entry: _Entry) -> _Row:
    question, answer = str(entry["question"]), str(entry["answer"])
    guard, floor = _guard_process(), 0.0
    for text in (None, "", question, *_list_forgeries(question + _INSTRUCTION).values()):
        with suppress(Exception):  # one that it cannot read earns nothing
            earned = _score_text(dataset, text, entry, may_evaluate=text not in _BOMBS.values())
            floor = max(floor, earned if earned < 1 else 0.0)  # one that is right by chance is no forgery
    with suppress(Exception):
        _score_text(dataset, answer, entry)
    return _Row(question=question, answer=answer, floor=1.0 if guard.has_refused else floor)


def _score_text(dataset: _Dataset, answer: str | None, entry: _Entry, *, may_evaluate: bool = True) -> float:
    with _guard_process().watch(may_evaluate=may_evaluate):
        return float(dataset.score_answer(answer, entry))


@lru_cache(1)  # a hook stays until its process ends
def _guard_process() -> "_Guard":
    guard = _Guard()
    sys.addaudithook(guard.check)
    return guard


class _Guard:
    """Refuses, while a scorer runs, to evaluate what is not a formula: text of a policy must not run as a program.

    Numbers and operators without powers, which take for ever, are formulas everywhere. Where sympy evaluates,
    variables, powers and its functions are, too: an unevaluated ``Integral`` is no answer to an integral. Modules that
    are imported meanwhile are trusted, and so are the functions and imports that libraries write for themselves: no
    expression has them.
    """

    def __init__(self) -> None:
        self.has_refused = False
        """Whether it did so since the last ``watch`` began."""
        self._is_on = self._may_evaluate = False

    @contextmanager
    def watch(self, *, may_evaluate: bool) -> Generator[None]:
        """Check until it ends."""
        self._is_on, self._may_evaluate, self.has_refused = True, may_evaluate, False
        try:
            yield
        finally:
            self._is_on = False

    def check(self, event: str, args: tuple[object, ...]) -> None:
        """Refuse the event ``exec`` of code that is no formula; the hook of the process."""
        if not self._is_on or event != "exec" or not isinstance(code := args[0], CodeType):
            return
        # An audit hook learns nowhere else who evaluates.
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        is_own = str(caller.f_globals.get("__name__")).startswith(_PACKAGE)
        if _is_importing(caller) or (not is_own and _is_statement(code)):
            return
        self._is_on = False  # what follows may import sympy
        try:
            is_formula = self._may_evaluate and _is_formula(code, is_own=is_own)
        finally:
            self._is_on = True
        if not is_formula:
            self.has_refused = True
            raise ValueError("an answer that is no formula is not evaluated")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") in ("importlib._bootstrap", "_frozen_importlib"):
            return True
        frame = frame.f_back
    return False


def _is_statement(code: CodeType) -> bool:
    return any(one.opname == "IMPORT_NAME" for one in dis.get_instructions(code)) or any(
        isinstance(one, CodeType) and one.co_name.isidentifier() for one in code.co_consts
    )


def _is_formula(code: CodeType, *, is_own: bool) -> bool:
    if any(isinstance(one, CodeType) for one in code.co_consts):
        return False
    if is_own:
        return not code.co_names and not any(
            one.opname == "BINARY_OP" and one.argrepr == "**" for one in dis.get_instructions(code)
        )
    loaded = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_NAME"}
    sympy = import_extra("sympy", _EXTRA)
    return loaded.issuperset(code.co_names) and all(
        name in _PLAIN_NAMES
        or _VARIABLE.fullmatch(name) is not None
        or (isinstance(one := getattr(sympy, name, None), type) and issubclass(one, sympy.Function))
        for name in code.co_names
    )
