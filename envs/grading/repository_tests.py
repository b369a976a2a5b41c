"""Tests of a repository, run by its own runner: the form of SWE-bench and its like.

**The judge is shared.** Tests that others wrote run in the interpreter of the judged code, which can force their
results. So this is no proof, and says so: the verdict carries ``judge: shared``, which stays on the trajectory, and
``train`` refuses such tasks unless told otherwise. Use ``ValueScorer``, ``HiddenTests`` or ``ProgramScorer`` where you
write the tests yourself.

What makes every test pass is found out all the same: each run has planted **canaries** beside the tests, which must
fail: plain ones, and copies of the tests that must begin to pass, whose values are compared with a text that was drawn.
A test that is skipped, missing, expected to fail, or that never came to its end has not passed.
"""

import ast
import random
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import ExecResult, SandboxSpec
from envs.grading.plain import ForgedJsonError, read_json
from envs.grading.prepared_box import UnfitArtifactsError, allow_seconds, prepare_box
from envs.grading.scorer import Judge, ScoringContext, Verdict

_PROGRAM: Final = (Path(__file__).parent / "guest" / "run_tests.py").read_text("utf-8")
_MAX_OUTPUT: Final = 8 << 20
_NUM_SHOWN: Final = 5
_MAX_SHOWN_LENGTH: Final = 500
_WORDS: Final = ("again", "basic", "cases", "edges", "extra", "inputs", "limits", "more", "other", "ranges", "values")
_CANARIES: Final = (
    "def {name}():\n    assert sorted({numbers}) == {numbers}\n",
    "def {name}():\n    raise RuntimeError({numbers})\n",
    """import unittest

class Test{kind}(unittest.TestCase):
    def {name}(self):
        self.assertEqual(sorted({numbers}), {numbers})
""",
)


class RepositoryGrading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Form of ``task.grading``. Tests are named as pytest does it: ``tests/test_a.py::test_b[1]``."""

    fail_to_pass: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Tests that fail at the start and must pass."""
    pass_to_pass: list[str] = []
    """Tests that pass at the start and must still pass."""
    files: dict[str, str] = {}
    """The tests as they must be, by path: they replace what the agent made of them."""


class RepositoryTests(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores 1 when all listed tests pass and all canaries fail, else 0. Contract: ``Scorer``."""

    seconds: float = 300.0
    """Longest run; shorter where the task limits ``score_seconds``."""
    spec: SandboxSpec | None = None
    """Box to judge in, which needs pytest; None: that of the agent."""
    python: tuple[str, ...] = ("python3",)
    """Interpreter in the box that has pytest and what the repository needs, with options."""
    reward: str | None = None
    """Name of the reward; None: the only one that the task declares, else ``reward``."""
    rng: random.Random = msgspec.field(default_factory=random.SystemRandom)
    """Source of the canaries; it must not be predictable."""

    @property
    def judge(self) -> Judge:
        """What judges shares an interpreter with what is judged."""
        return "shared"

    @property
    def version(self) -> str:
        """Differs where answers may differ."""
        return f"1 {(self.seconds, self.spec, self.python, self.reward)!r}"

    async def score(self, context: ScoringContext) -> Verdict:
        """Run the files of all listed tests, with a canary file beside each.

        Raises:
            BadInputError: the grading has another form.
            SandboxError: no box could be made, or it was lost.
        """
        grading = read_lists(context.task.grading, context.task.id)
        name = self.reward or next(iter(context.task.rewards), "reward")
        listed = [*grading.fail_to_pass, *grading.pass_to_pass]
        planted = dict(self._plant(grading))
        canaries = {test for tests, _ in planted.values() for test in tests}
        files = grading.files | {path: text for path, (_, text) in planted.items()}
        paths = [*dict.fromkeys(test.partition("::")[0] for test in listed), *planted]
        self.rng.shuffle(paths)
        try:
            box = await prepare_box(context, spec=self.spec, files=files)
        except UnfitArtifactsError as error:
            return Verdict(scores={name: 0.0}, evidence={"error": str(error)}, judge=self.judge)
        ended = await box.exec(
            [*self.python, "-c", _PROGRAM, *paths], seconds=allow_seconds(context, self.seconds), max_output=_MAX_OUTPUT
        )
        try:
            results = _read_results(ended)
        except ForgedJsonError as error:
            return Verdict(status="tampering", tampering=[str(error)], judge=self.judge)
        missed = [test for test in listed if results.get(test) != "passed"]
        alive = canaries - {test.partition("[")[0] for test, result in results.items() if result == "failed"}
        alive |= {test for test, result in results.items() if result != "failed" and test.partition("[")[0] in canaries}
        if alive and len(missed) < len(listed):
            what = f"tests: {len(alive)} of {len(canaries)} canaries that must fail did not, while others passed"
            return Verdict(status="tampering", tampering=[what], judge=self.judge)
        return Verdict(
            scores={name: float(not missed and not alive)},
            evidence={
                "tests": len(listed),
                "failed": len(missed),
                "shown": [f"{test}: {results.get(test, 'missing')}" for test in missed[:_NUM_SHOWN]],
                "status": ended.status,
                "errors": ended.stderr[-_MAX_SHOWN_LENGTH:].decode(errors="replace") if missed else "",
            },
            judge=self.judge,
        )

    def _plant(self, grading: RepositoryGrading) -> Iterator[tuple[str, tuple[Sequence[str], str]]]:
        """Yield path, ids of the tests, and text of a canary file beside each file of tests."""
        listed = [*grading.fail_to_pass, *grading.pass_to_pass]
        for path in dict.fromkeys(test.partition("::")[0] for test in listed):
            stem = f"{PurePosixPath(path).stem}_{self.rng.choice(_WORDS)}"
            canary = str(PurePosixPath(path).with_name(f"{stem}_{self.rng.randrange(10, 100)}.py"))
            must = {test.partition("[")[0].removeprefix(f"{path}::") for test in grading.fail_to_pass}
            tests, text = _spoil_tests(grading.files.get(path, ""), must, f"{self.rng.getrandbits(128):032x}")
            names = [test.partition("[")[0].rpartition("::")[2] for test in listed if test.startswith(f"{path}::")]
            for form, number in zip(_CANARIES, self.rng.sample(range(10, 100), len(_CANARIES)), strict=True):
                name = f"{self.rng.choice(names)}_{self.rng.choice(_WORDS)}_{number}"
                if "{kind}" in form and not name.startswith("test"):
                    name = f"test_{name}"  # unittest knows no other names, whatever the settings of pytest
                kind = f"{self.rng.choice(_WORDS).title()}{number}"
                numbers = [self.rng.randrange(50, 90), *(self.rng.randrange(50) for _ in range(3))]
                text += "\n\n" + form.format(name=name, kind=kind, numbers=numbers)
                tests.append(f"Test{kind}::{name}" if "{kind}" in form else name)
            yield canary, ([f"{canary}::{test}" for test in tests], text)


def _spoil_tests(text: str, names: Set[str], secret: str) -> tuple[list[str], str]:
    """Return those of these tests that can be spoiled, and a file with no others, where each compares with a secret."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return [], ""
    spoiled = list[str]()
    for prefix, scope in [("", tree), *((f"{one.name}::", one) for one in tree.body if isinstance(one, ast.ClassDef))]:
        kept = list[ast.stmt]()
        for one in scope.body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test"):
                if prefix + one.name not in names or not _spoil(one, secret):
                    continue
                spoiled.append(prefix + one.name)
            kept.append(one)
        scope.body = kept or [ast.Pass()]
    return spoiled, ast.unparse(tree)


def _spoil(test: ast.FunctionDef | ast.AsyncFunctionDef, secret: str) -> bool:
    """Compare with a secret in place of every expectation; return whether the test fails then, wherever it passed."""
    if any("parametrize" not in ast.unparse(one) for one in test.decorator_list):
        return False  # one that skips would not fail
    if any(isinstance(one, ast.Return | ast.Yield) for one in ast.walk(test)):
        return False
    is_spoiled = False
    for statement in test.body:
        match statement:
            case ast.Assert(test=ast.Compare(ops=[ast.Eq()]) as compared):
                compared.comparators = [ast.Constant(secret)]
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="assertEqual"), args=[_, _, *_] as values)):
                values[1] = ast.Constant(secret)
            case _:
                continue
        is_spoiled = True
    return is_spoiled


def read_lists(grading: object, task_id: str) -> RepositoryGrading:
    """Return the lists of tests of a task.

    Raises: BadInputError: they have another form.
    """
    try:
        found = msgspec.convert(grading, RepositoryGrading)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task_id!r}: its grading holds no lists of tests, {error}; correct it") from error
    for test in (*found.fail_to_pass, *found.pass_to_pass):
        text, *names = test.partition("[")[0].split("::")
        path = PurePosixPath(text)
        is_below = str(path) == text and not path.is_absolute() and ".." not in path.parts and text[:1] != "-"
        if not is_below or not names or not all(name.isidentifier() for name in names):
            raise BadInputError(
                f"task {task_id!r}: expected tests such as 'tests/test_a.py::test_b', found {test!r}; correct it"
            )
    return found


class _Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    results: list[tuple[str, Literal["passed", "failed", "skipped", "xpassed"]]]


def _read_results(ended: ExecResult) -> Mapping[str, str]:
    """Return the claimed result of each test; none unless the run ended by itself and wrote.

    Raises: ForgedJsonError: honest code cannot have written this.
    """
    if ended.status != "exited" or not ended.stdout:
        return {}
    try:
        results = msgspec.convert(read_json(ended.stdout), _Report).results
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ForgedJsonError(f"tests: the judged code wrote the report of its own tests, {error!r}") from error
    if len(dict(results)) != len(results):
        raise ForgedJsonError("tests: the judged code wrote the report of its own tests, with a test twice")
    return dict(results)
