"""Hidden tests with twin canaries, for what no plain value can express.

The tests share their interpreter with the judged code, which can forge every result. Therefore each test has a
**twin**: the same code with a wrong expectation, which must fail. Names and order are random in each run. Right code
passes the tests and fails the twins; code that makes everything pass, or everything fail, is found out; code that
forges the report has to guess, pair by pair, which of two tests is real. With n pairs that look alike it is right with
2^-n, so there must be at least ``MIN_PAIRS``, and no way to tell the two by their text. Partial credit would pay for
guessing, so there is none.

Code that is nearly right could guess only where its own answer fits neither test of a pair. Therefore the tests run
twice, and in each run another half of the pairs are **traps**: both expectations are wrong, so both must fail. Code
whose answer fits neither cannot know whether it is wrong or in a trap. Its best guess is right with 1 / (n + 2).

Use ``ValueScorer`` wherever a call returns a plain value: there is nothing to guess.
"""

import ast
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import ExecResult, SandboxSpec
from envs.grading.plain import ForgedJsonError, read_json
from envs.grading.prepared_box import UnfitArtifactsError, allow_seconds, prepare_box
from envs.grading.scorer import ScoringContext, Verdict
from envs.grading.values import PYTHON

MIN_PAIRS: Final = 20
"""Fewest tests: training tries millions of times."""
_PROGRAM: Final = (Path(__file__).parent / "guest" / "run_tests.py").read_text("utf-8")
_BOOLEANS: Final = ("True", "False")
_PLACE: Final = re.compile(r"\bEXPECTED\b")
_MAX_OUTPUT: Final = 1 << 20
_NUM_SHOWN: Final = 5
_COMMON: Final = 0.25
"""Share of the tests from which on one text of an expectation is common."""


class HiddenTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test and its twins."""

    code: str
    """Statements that import the judged code and assert; ``EXPECTED`` stands for the expectation."""
    right: str
    """The expectation, as Python text."""
    wrong: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Expectations that must fail; a pair has one of them, a trap two. One is enough where it is True or False."""


class TestGrading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Form of ``task.grading``."""

    __test__ = False  # pytest would collect it by its name

    tests: list[HiddenTest]
    files: dict[str, str] = {}
    """Further files in the box, over those of the agent, by path."""


class _Pair(msgspec.Struct, frozen=True):
    """Names of a test and its twin, in one run."""

    real: str
    twin: str
    is_trap: bool
    """Both have wrong expectations."""


class HiddenTests(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores 1 when every test passes, and every twin and trap fails, else 0. Contract: ``Scorer``."""

    seconds: float = 60.0
    """Longest time of one of the two runs; shorter where the task limits ``score_seconds``."""
    answer_path: str | None = None
    """File for the text that the agent returned; None: its files are judged."""
    spec: SandboxSpec | None = None
    """Box to judge in; None: that of the agent."""
    python: tuple[str, ...] = PYTHON
    """Interpreter in the box, with options. It runs pytest where it has it."""
    reward: str | None = None
    """Name of the reward; None: the only one that the task declares, else ``reward``."""
    rng: random.Random = msgspec.field(default_factory=random.SystemRandom)
    """Source of names, order and twins; it must not be predictable."""

    @property
    def version(self) -> str:
        """Differs where answers may differ."""
        return f"2 {(self.seconds, self.answer_path, self.spec, self.python, self.reward)!r}"

    async def score(self, context: ScoringContext) -> Verdict:
        """Run all tests.

        Raises:
            BadInputError: the grading has another form, too few tests, or twins that their text gives away.
            SandboxError: no box could be made, or it was lost.
        """
        grading = read_tests(context.task.grading, context.task.id)
        name = self.reward or next(iter(context.task.rewards), "reward")
        verdict = Verdict()
        for trapped in self._draw_traps(grading.tests):
            verdict = await self._run(context, grading, trapped, name)
            if verdict.scores.get(name) != 1.0:
                break
        return verdict

    async def _run(self, context: ScoringContext, grading: TestGrading, trapped: Set[int], name: str) -> Verdict:
        """Run all tests once, in a box of their own: what code learns in one run does not reach the other."""
        pairs, text = self._render(grading.tests, trapped)
        path = f"{self._new_name('checks')}/{self._new_name('test')}.py"
        try:
            box = await prepare_box(
                context, spec=self.spec, answer_path=self.answer_path, files={**grading.files, path: text}
            )
        except UnfitArtifactsError as error:
            return Verdict(scores={name: 0.0}, evidence={"error": str(error)})
        seconds = min(self.seconds, allow_seconds(context, 2 * self.seconds) / 2)
        ended = await box.exec([*self.python, "-c", _PROGRAM, path], seconds=seconds, max_output=_MAX_OUTPUT)
        await box.close()
        try:
            results = _read_results(ended)
        except ForgedJsonError as error:
            return Verdict(status="tampering", tampering=[str(error)])
        return _judge(pairs, results, name, ended)

    def _draw_traps(self, tests: Sequence[HiddenTest]) -> tuple[Set[int], Set[int]]:
        """Return the indexes of the traps of each run; every test is real in at least one of them."""
        able = [index for index, test in enumerate(tests) if len(test.wrong) > 1]
        self.rng.shuffle(able)
        half = len(able) // 2
        return set(able[:half]), set(able[half:])

    def _render(self, tests: Sequence[HiddenTest], trapped: Set[int]) -> tuple[list[_Pair], str]:
        """Return the pairs, in order of the tests, and a file with both of each, in random order."""
        pairs = [_Pair(self._new_name("test"), self._new_name("test"), index in trapped) for index in range(len(tests))]
        functions: list[str] = []
        for pair, test in zip(pairs, tests, strict=True):
            both = self.rng.sample(test.wrong, 2) if pair.is_trap else [test.right, self.rng.choice(test.wrong)]
            functions += [_make_function(pair.real, test.code, both[0]), _make_function(pair.twin, test.code, both[1])]
        self.rng.shuffle(functions)
        return pairs, "\n\n".join(functions)

    def _new_name(self, kind: str) -> str:
        return f"{kind}_{self.rng.getrandbits(64):016x}"


def read_tests(grading: object, task_id: str) -> TestGrading:
    """Return the tests of a task.

    Raises: BadInputError: they have another form, are too few, or their text gives twins away.
    """
    try:
        found = msgspec.convert(grading, TestGrading)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task_id!r}: its grading holds no tests, {error}; correct it") from error
    if len(found.tests) < MIN_PAIRS:
        raise BadInputError(
            f"task {task_id!r}: {len(found.tests)} tests with twins, and {MIN_PAIRS} are the fewest that cannot be"
            " guessed; add tests, or use ValueScorer"
        )
    for index, test in enumerate(found.tests):
        _check_test(test, f"task {task_id!r}, test {index}")
    if why := _find_difference(found.tests):
        raise BadInputError(
            f"task {task_id!r}: a cheat can tell tests from their twins, {why}; choose wrong expectations that look"
            " like right ones"
        )
    return found


def _check_test(test: HiddenTest, subject: str) -> None:
    if not _PLACE.search(test.code):
        raise BadInputError(f"{subject}: its code has no EXPECTED; put it where the expectation belongs")
    if test.right in test.wrong:
        raise BadInputError(f"{subject}: the expectation {test.right} is right and wrong; correct it")
    if len(set(test.wrong)) < max(len(test.wrong), 1 if test.right in _BOOLEANS else 2):
        raise BadInputError(f"{subject}: a trap needs two different wrong expectations; add another")
    try:
        ast.parse("\n".join(_make_function("test", test.code, one) for one in (test.right, *test.wrong)))
    except SyntaxError as error:
        raise BadInputError(f"{subject}: it is no Python, {error}; correct it") from error


def _find_difference(tests: Sequence[HiddenTest]) -> str | None:
    """Return how tests and twins differ on the whole; None: in nothing that is looked for here."""
    rights = Counter(test.right for test in tests)
    wrongs = defaultdict[str, float](float)
    """By text, how often a run has it as a wrong expectation, on average."""
    for test in tests:
        for one in test.wrong:
            wrongs[one] += 1 / len(test.wrong)
    for text in rights.keys() | wrongs.keys():
        right, wrong = rights[text], wrongs[text]
        if max(right, wrong) > _COMMON * len(tests) and min(right, wrong) < max(right, wrong) / 2:
            return f"{text} is right in {right} and wrong in {wrong:g}"
    larger = [is_larger for test in tests for is_larger in _compare(test)]
    if len(larger) > _COMMON * len(tests) and len(set(larger)) == 1:
        return f"every wrong number is {'larger' if larger[0] else 'smaller'} than the right one"
    return None


def _compare(test: HiddenTest) -> Iterator[bool]:
    """Yield whether wrong numbers are larger than the right one."""
    right = _read_number(test.right)
    for text in test.wrong:
        wrong = _read_number(text)
        if right is not None and wrong is not None:
            yield wrong > right


def _read_number(text: str) -> float | None:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _make_function(name: str, code: str, expectation: str) -> str:
    body = _PLACE.sub(lambda _: f"({expectation})", code)
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())


class _Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    results: list[tuple[str, Literal["passed", "failed", "error"]]]


def _read_results(ended: ExecResult) -> Sequence[tuple[str, str]]:
    """Return the claimed result of each test; none unless the run ended by itself and wrote.

    Raises: ForgedJsonError: honest code cannot have written this.
    """
    if ended.status != "exited":
        return []
    if not ended.stdout:
        if ended.exit_code == 0:
            raise ForgedJsonError("tests: the judged code ended the run, and claimed success")
        return []
    try:
        return msgspec.convert(read_json(ended.stdout), _Report).results
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ForgedJsonError(f"tests: the judged code wrote the report of its own tests, {error!r}") from error


def _judge(pairs: Sequence[_Pair], results: Sequence[tuple[str, str]], name: str, ended: ExecResult) -> Verdict:
    outcome = dict(results)
    known = {one for pair in pairs for one in (pair.real, pair.twin)}
    if len(outcome) != len(results) or not outcome.keys() <= known:
        return Verdict(status="tampering", tampering=["tests: results of tests that do not exist, or are given twice"])
    both = [index for index, pair in enumerate(pairs) if outcome.get(pair.real) == outcome.get(pair.twin) == "passed"]
    if both:
        found = f"tests: {len(both)} of {len(pairs)} pairs passed as a whole, though one of the two must fail"
        return Verdict(status="tampering", tampering=[found])
    failed = [
        index
        for index, pair in enumerate(pairs)
        if (outcome.get(pair.real), outcome.get(pair.twin)) != ("failed" if pair.is_trap else "passed", "failed")
    ]
    return Verdict(
        scores={name: float(not failed)},
        evidence={"tests": len(pairs), "failed": len(failed), "shown": failed[:_NUM_SHOWN], "status": ended.status},
    )
