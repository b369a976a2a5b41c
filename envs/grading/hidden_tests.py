"""Hidden tests: statements that lead to a value, which is compared outside of the box.

The statements share their interpreter with the judged code, which can take over everything there. Therefore nothing
there decides: each test ends with ``assert VALUE == EXPECTED``, the box computes the value only, and the expectation
never enters it. Code that is nearly right learns nothing about the answers that it lacks; all that it can do is claim
a value.

What is left is to guess. Each test names wrong expectations that look like the right one, so a guess is right with
1 / (1 + their number), or with the share of the tests that have the same answer, if that is larger. Credit is given for
a group of tests that all hold, and the guesses of a group must be right with ``MAX_GUESS_CHANCE`` at most.

Each test has a **twin** that must fail: its value must not equal a text that was drawn for this run. What equals it,
equals everything, and is tampering.
"""

import ast
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject
from agent_layer.schema.sandbox import SandboxSpec
from envs.grading.guest.call_functions import DEEPEST, encode
from envs.grading.plain import ForgedJsonError, check_plain, equal_values, value_key
from envs.grading.prepared_box import UnfitArtifactsError, allow_seconds, prepare_box
from envs.grading.scorer import ScoringContext, Verdict
from envs.grading.values import PYTHON, Answer, claim_answers

MIN_TESTS: Final = 20
MAX_GUESS_CHANCE: Final = 2.0**-20
"""Largest chance of guessing all answers that earn a credit: training tries millions of times."""
_CODE: Final = """{0}
FOUND = [{1}]
try:
    FOUND += [FOUND[0] == "{canary}"]
except Exception:
    FOUND += [False]
"""
"""Statements before the value, and the value; gives ``FOUND`` what it is, and whether the twin holds."""
_PLACE: Final = re.compile(r"\bEXPECTED\b")
_NUM_SHOWN: Final = 5
_MAX_SHOWN_LENGTH: Final = 200


class HiddenTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test, and what its answer could be taken for."""

    code: str
    """Statements that import the judged code and end with ``assert VALUE == EXPECTED``."""
    right: str
    """The expectation, as a Python literal."""
    wrong: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Other literals that code which is nearly right could answer; they say how hard the right one is to guess."""
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Absolute and relative difference that two floats may have."""
    group: str = ""
    """Tests of one group earn partial credit together."""


class TestGrading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Form of ``task.grading``."""

    __test__ = False  # pytest would collect it by its name

    tests: list[HiddenTest]
    weights: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e9)]] = {}
    """Share of a group in partial credit, relative to the others; 1 where it is absent."""
    files: dict[str, str] = {}
    """Further files in the box, over those of the agent, by path."""


class HiddenTests(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores 1 when every test holds, else 0. Contract: ``Scorer``."""

    partial: bool = False
    """Score the share of the groups that hold as a whole, by their weights."""
    call_seconds: float = 5.0
    """Longest test; the first that is longer is the last, and the tests after it fail."""
    seconds: float = 60.0
    """Longest time of all tests; shorter where the task limits ``score_seconds``."""
    answer_path: str | None = None
    """File for the text that the agent returned; None: its files are judged."""
    spec: SandboxSpec | None = None
    """Box to judge in; None: that of the agent."""
    python: tuple[str, ...] = PYTHON
    """Interpreter in the box, with options."""
    reward: str | None = None
    """Name of the reward; None: the only one that the task declares, else ``reward``."""
    rng: random.Random = msgspec.field(default_factory=random.SystemRandom)
    """Source of the twins; it must not be predictable."""

    @property
    def version(self) -> str:
        """Differs where answers may differ."""
        options = (self.partial, self.call_seconds, self.seconds, self.answer_path, self.spec, self.python, self.reward)
        return f"3 {options!r}"

    async def score(self, context: ScoringContext) -> Verdict:
        """Run all tests and their twins.

        Raises:
            BadInputError: the grading has another form, too few tests, or answers that can be guessed.
            SandboxError: no box could be made, or it was lost.
        """
        grading = read_tests(context.task.grading, context.task.id, partial=self.partial)
        name = self.reward or next(iter(context.task.rewards), "reward")
        canary = f"{self.rng.getrandbits(128):032x}"
        try:
            box = await prepare_box(context, spec=self.spec, answer_path=self.answer_path, files=grading.files)
            answers = await claim_answers(
                box,
                [{"code": _CODE.format(*_split_code(test.code), canary=canary)} for test in grading.tests],
                call_seconds=self.call_seconds,
                seconds=allow_seconds(context, self.seconds),
                python=self.python,
            )
        except UnfitArtifactsError as error:
            return Verdict(scores={name: 0.0}, evidence={"error": str(error)})
        except ForgedJsonError as error:
            return Verdict(status="tampering", tampering=[str(error)])
        values = [_split_answer(answer) for answer in answers]
        if num_equal := sum(is_equal for _, is_equal in values):
            found = f"tests: the values of {num_equal} of {len(values)} tests equal everything"
            return Verdict(status="tampering", tampering=[found])
        return _judge(grading, [value for value, _ in values], name, partial=self.partial)


def read_tests(grading: object, task_id: str, *, partial: bool = False) -> TestGrading:
    """Return the tests of a task.

    Args:
        grading: as the task has it.
        task_id: for errors.
        partial: whether each group earns a credit of its own.

    Raises: BadInputError: they have another form, are too few, or their answers can be guessed.
    """
    try:
        found = msgspec.convert(grading, TestGrading)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task_id!r}: its grading holds no tests, {error}; correct it") from error
    if len(found.tests) < MIN_TESTS:
        raise BadInputError(
            f"task {task_id!r}: {len(found.tests)} tests, and {MIN_TESTS} are the fewest; add tests, or use ValueScorer"
        )
    for index, test in enumerate(found.tests):
        _check_test(test, f"task {task_id!r}, test {index}")
    groups = _group_tests(found)
    if partial and len(groups) == 1:
        raise BadInputError(f"task {task_id!r}: partial credit is given by groups, and its tests have one; name more")
    if unknown := found.weights.keys() - groups:
        raise BadInputError(f"task {task_id!r}: no test is in the group {min(unknown)!r} of its weights; correct it")
    for name, tests in groups.items() if partial else [("", found.tests)]:
        chance = guess_chance(tests)
        if chance > MAX_GUESS_CHANCE:
            which = f"the {len(tests)} tests of group {name!r}" if name else f"its {len(tests)} tests"
            raise BadInputError(
                f"task {task_id!r}: the answers to {which} can be guessed with 2^{math.log2(chance):.1f}, and"
                f" 2^{math.log2(MAX_GUESS_CHANCE):.0f} is the most; add tests, or wrong expectations that look like"
                " right ones, or use answers that differ"
            )
    return found


def guess_chance(tests: Sequence[HiddenTest]) -> float:
    """Return the chance that guesses hit the answers to all of these tests.

    A guess is one of the expectations of its test, or the answer that other tests have, whichever is likelier.
    """
    answers = [value_key(_read_literal(test.right)) for test in tests]
    shares = Counter(answers)
    return math.prod(
        max(1 / (1 + len({value_key(_read_literal(one)) for one in test.wrong})), shares[answer] / len(tests))
        for test, answer in zip(tests, answers, strict=True)
    )


def _group_tests(grading: TestGrading) -> Mapping[str, Sequence[HiddenTest]]:
    groups = defaultdict[str, list[HiddenTest]](list)
    for test in grading.tests:
        groups[test.group].append(test)
    return groups


def _check_test(test: HiddenTest, subject: str) -> None:
    if not _PLACE.search(test.code):
        raise BadInputError(f"{subject}: its code has no EXPECTED; put it where the expectation belongs")
    try:
        compile(test.code, "test", "exec")
        _split_code(test.code)
    except SyntaxError as error:
        raise BadInputError(f"{subject}: it is no Python, {error}; correct it") from error
    except ValueError as error:
        raise BadInputError(
            f"{subject}: {error}, so that judged code could read or silence its expectation; let it end with 'assert"
            " VALUE == EXPECTED', its only assertion"
        ) from error
    for text in (test.right, *test.wrong):
        try:
            check_plain(_read_literal(text), subject)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, BadInputError) as error:
            raise BadInputError(
                f"{subject}: the expectation {text[:_MAX_SHOWN_LENGTH]} is no plain Python literal; compare a plain"
                " value, such as str(x)"
            ) from error
    for text in test.wrong:
        if _holds(test, _read_literal(text)):
            raise BadInputError(f"{subject}: the expectation {text} is right and wrong; correct it")


def _holds(test: HiddenTest, value: object) -> bool:
    return equal_values(_read_literal(test.right), value, test.tolerance, by_value=True)


def _split_code(code: str) -> tuple[str, str]:
    """Return the statements before the assertion, and the text of its value.

    Raises: SyntaxError: it is no Python. ValueError: it asserts otherwise.
    """
    tree = ast.parse(code)
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "EXPECTED"]
    match tree.body:
        case [*before, ast.Assert(test=ast.Compare(left=one, ops=[ast.Eq()], comparators=[other])) as last] if (
            asserts == [last] and len(names) == 1 and names[0] in (one, other)
        ):
            value = other if one is names[0] else one
            return ast.unparse(ast.Module(before, [])), ast.unparse(value)
        case _:
            raise ValueError("it compares its expectation in another way")


def _read_literal(text: str) -> object:
    """Return a Python literal as the box would claim it, in a list. Raises: as ``ast.literal_eval``: it is none."""
    return encode(ast.literal_eval(text), DEEPEST - 1)


def _split_answer(answer: Answer) -> tuple[object, bool]:
    """Return the value of a test, and whether it equals a text that was drawn."""
    value: object = answer.value
    claimed = cast("list[object]", value) if isinstance(value, list) else []
    if len(claimed) == 2:  # as _CODE gives it
        return claimed[0], claimed[1] is True
    return {"$object": f"raised {answer.raised}" if answer.raised else "no answer"}, False


def _judge(grading: TestGrading, values: Sequence[object], name: str, *, partial: bool) -> Verdict:
    failed = [index for index, test in enumerate(grading.tests) if not _holds(test, values[index])]
    weights = {group: grading.weights.get(group, 1.0) for group in _group_tests(grading)}
    lost = {grading.tests[index].group for index in failed}
    held = math.fsum(weight for group, weight in weights.items() if group not in lost)
    return Verdict(
        scores={name: held / math.fsum(weights.values()) if partial else float(not failed)},
        evidence={
            "tests": len(grading.tests),
            "failed": len(failed),
            "shown": [_show(index, grading.tests[index], values[index]) for index in failed[:_NUM_SHOWN]],
        },
    )


def _show(index: int, test: HiddenTest, value: object) -> JsonObject:
    return {"test": index, "expected": test.right[:_MAX_SHOWN_LENGTH], "found": repr(value)[:_MAX_SHOWN_LENGTH]}
