"""Programs in any language that the box has: standard input goes in, standard output is compared outside of the box.

Why nothing can be forged: the expected output never enters the box of the judged program, which can only write its
output. A checker is a program of the task's author. It runs in a box of its own, fresh for each case, where the output
is a file and no judged code is.
"""

import math
import re
import time
from decimal import Decimal
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject
from agent_layer.schema.sandbox import ExecResult, Sandbox, SandboxSpec, Snapshot
from envs.grading.prepared_box import UnfitArtifactsError, allow_seconds, archive_files, prepare_box
from envs.grading.scorer import ScoringContext, Verdict

Comparison: TypeAlias = Literal["exact", "tolerant", "checker"]
"""How the output of a program is compared.

exact     the same bytes
tolerant  the same words; how much white space stands between them does not count, numbers are compared by value
checker   the checker of the grading accepts it
"""
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
_NUMBER: Final = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_INTEGER: Final = re.compile(rb"[+-]?\d+")
_MAX_NUMBER_LENGTH: Final = 400
_LEAST_SECONDS: Final = 0.1
_NUM_SHOWN: Final = 5
_MAX_SHOWN_LENGTH: Final = 200


class ProgramCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of the program, and what it must write."""

    stdin: str = ""
    args: list[str] = []
    """Behind the command."""
    expected: str | None = None
    """Standard output; None: only a checker judges it."""
    compare: Comparison | None = None
    """None: as the grading says."""
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Absolute and relative difference that numbers with a point or an exponent may have, for ``tolerant``; None: as
    the grading says."""
    seconds: Positive | None = None
    """Longest run; None: ``case_seconds`` of the scorer."""
    memory_mb: Annotated[int, msgspec.Meta(gt=0)] | None = None
    """Memory of the box of this case; None: that of the task's box."""
    weight: Positive = 1.0
    """Share of this case in partial credit, relative to the others."""


class Checker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that decides whether an output will do: by exit status 0, and by any other that it will not."""

    run: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Command; the files ``input``, ``output`` and ``answer`` are in its work directory, and named behind it."""
    files: dict[str, str] = {}
    """Files in its box, by path."""


class ProgramGrading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Form of ``task.grading``."""

    run: Annotated[list[str], msgspec.Meta(min_length=1)]
    """Command in the work directory of the judged program."""
    cases: Annotated[list[ProgramCase], msgspec.Meta(min_length=1)]
    build: list[str] = []
    """Command that runs once before the cases, such as a compiler."""
    compare: Comparison = "exact"
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    checker: Checker | None = None
    files: dict[str, str] = {}
    """Further files in the box, over those of the agent, by path."""


class _Run(NamedTuple):
    """What became of one case."""

    miss: str | None
    """Why it does not hold; None: it holds."""
    ended: ExecResult


class ProgramScorer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores 1 when all cases of ``task.grading`` hold, else 0. Contract: ``Scorer``."""

    partial: bool = False
    """Score the share of the cases that hold, by their weights."""
    isolated: bool = False
    """Each case has a fresh box. Else those of equal memory share one, and find the files of earlier ones."""
    case_seconds: float = 5.0
    """Longest run of a case that names no limit; one that is longer fails, and the next one runs."""
    build_seconds: float = 60.0
    check_seconds: float = 10.0
    """Longest run of the checker; an output that makes it slower will not do."""
    seconds: float = 120.0
    """Longest time of build, cases and checks; shorter where the task limits ``score_seconds``. Later cases fail."""
    max_output: int = 4 << 20
    """Bytes of output and errors of one run."""
    answer_path: str | None = None
    """File for the text that the agent returned; None: its files are judged."""
    spec: SandboxSpec | None = None
    """Box to judge in; None: that of the agent."""
    reward: str | None = None
    """Name of the reward; None: the only one that the task declares, else ``reward``."""

    @property
    def version(self) -> str:
        """Differs where answers may differ."""
        return f"1 {self!r}"

    async def score(self, context: ScoringContext) -> Verdict:
        """Run all cases; without partial credit the first that does not hold is the last.

        Raises:
            BadInputError: the grading has another form.
            SandboxError: no box could be made, or it was lost.
        """
        grading = read_program_grading(context.task.grading, context.task.id)
        name = self.reward or next(iter(context.task.rewards), "reward")
        try:
            runs = await self._run_cases(context, grading)
        except (UnfitArtifactsError, OSError) as error:  # the latter: what the build left is no plain tree
            return Verdict(scores={name: 0.0}, evidence={"error": str(error)})
        held = math.fsum(case.weight for case, run in zip(grading.cases, runs, strict=False) if run.miss is None)
        is_whole = len(runs) == len(grading.cases) and all(run.miss is None for run in runs)
        share = 1.0 if is_whole else held / math.fsum(case.weight for case in grading.cases)
        missed = [index for index, run in enumerate(runs) if run.miss is not None]
        return Verdict(
            scores={name: share if self.partial else float(is_whole)},
            evidence={
                "cases": len(grading.cases),
                "run": len(runs),
                "failed": len(missed),
                "shown": [_show(index, grading.cases[index], runs[index]) for index in missed[:_NUM_SHOWN]],
            },
        )

    async def _run_cases(self, context: ScoringContext, grading: ProgramGrading) -> list[_Run]:
        """Return what became of each case, in order; without partial credit only up to the first miss.

        Raises: UnfitArtifactsError: what the agent left cannot be put into a box, or not be built.
        """
        deadline = time.monotonic() + allow_seconds(context, self.seconds)
        spec = self.spec or context.task.sandbox or SandboxSpec()
        box = await prepare_box(context, spec=spec, answer_path=self.answer_path, files=grading.files)
        if grading.build:
            built = await box.exec(grading.build, seconds=min(self.build_seconds, deadline - time.monotonic()))
            if why := _explain_end(built):
                shown = (built.stderr or built.stdout)[-_MAX_SHOWN_LENGTH:].decode(errors="replace")
                raise UnfitArtifactsError(f"the build {why}: {shown}")
        start = await box.snapshot() if self.isolated or any(case.memory_mb for case in grading.cases) else None
        boxes = {spec.resources.memory_mb: box}
        """Boxes that later cases share, by memory."""
        runs: list[_Run] = []
        for case in grading.cases:
            memory_mb = case.memory_mb or spec.resources.memory_mb
            box = boxes.pop(memory_mb, None) or await _copy_box(context, spec, memory_mb, start)
            seconds = min(case.seconds or self.case_seconds, max(_LEAST_SECONDS, deadline - time.monotonic()))
            stdin = case.stdin.encode("utf-8", "surrogateescape")
            command = [*grading.run, *case.args]
            ended = await box.exec(command, stdin=stdin, seconds=seconds, max_output=self.max_output)
            if self.isolated:
                await box.close()
            else:
                boxes[memory_mb] = box
            left = max(_LEAST_SECONDS, deadline - time.monotonic())
            runs.append(_Run(_explain_end(ended) or await self._compare(context, grading, case, ended, left), ended))
            if time.monotonic() > deadline or (runs[-1].miss and not self.partial):
                break
        return runs

    async def _compare(  # context and limit of what judges, beside what is judged
        self, context: ScoringContext, grading: ProgramGrading, case: ProgramCase, ended: ExecResult, left: float
    ) -> str | None:
        """Return why the output of a case will not do; None: it will."""
        expected = (case.expected or "").encode("utf-8", "surrogateescape")
        match case.compare or grading.compare:
            case "exact":
                return None if ended.stdout == expected else "differs"
            case "tolerant":
                tolerance = grading.tolerance if case.tolerance is None else case.tolerance
                return None if equal_words(expected, ended.stdout, tolerance) else "differs"
            case "checker":
                assert grading.checker is not None
                files = {
                    **grading.checker.files,
                    "input": case.stdin,
                    "output": ended.stdout.decode("utf-8", "surrogateescape"),
                    "answer": case.expected or "",
                }
                box = await context.sandbox(self.spec)  # no judged code has touched it
                await box.restore(archive_files(files))
                command = [*grading.checker.run, "input", "output", "answer"]
                checked = await box.exec(command, seconds=min(self.check_seconds, left))
                await box.close()
                why = _explain_end(checked)
                return why and f"the checker {why} {checked.stderr[-_MAX_SHOWN_LENGTH:].decode(errors='replace')}"


def read_program_grading(grading: object, task_id: str) -> ProgramGrading:
    """Return the cases of a task.

    Raises: BadInputError: they have another form.
    """
    try:
        found = msgspec.convert(grading, ProgramGrading)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task_id!r}: its grading holds no runs of a program, {error}; correct it") from error
    for index, case in enumerate(found.cases):
        try:
            "".join([case.stdin, case.expected or "", *case.args]).encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise BadInputError(
                f"task {task_id!r}, case {index}: it has characters that no file holds, {error}; correct it"
            ) from error
        is_checked = (case.compare or found.compare) == "checker"
        if is_checked and found.checker is None:
            raise BadInputError(
                f"task {task_id!r}, case {index}: the grading has no checker; add one, or compare exact"
            )
        if not is_checked and case.expected is None:
            raise BadInputError(f"task {task_id!r}, case {index}: it expects no output; add expected, or a checker")
    return found


def equal_words(expected: bytes, found: bytes, tolerance: float = 0.0) -> bool:
    """Whether two outputs have the same words, in order.

    Numbers are equal by value: ``1.50`` is ``1.5``. An integer of the expectation is met exactly, so that no tolerance
    lets a neighbour pass; ``nan`` and ``inf`` are words.

    Args:
        expected: of the grading.
        found: of the judged program.
        tolerance: absolute and relative difference that a number may have whose expectation has a point or an exponent.
    """
    words, others = expected.split(), found.split()
    return len(words) == len(others) and all(
        one == other or _equal_numbers(one, other, tolerance) for one, other in zip(words, others, strict=True)
    )


def _equal_numbers(expected: bytes, found: bytes, tolerance: float) -> bool:
    if max(len(expected), len(found)) > _MAX_NUMBER_LENGTH:
        return False
    if not _NUMBER.fullmatch(expected) or not _NUMBER.fullmatch(found):
        return False
    if _INTEGER.fullmatch(expected):
        whole, _, fraction = found.partition(b".")
        return not fraction.strip(b"0") and bool(_INTEGER.fullmatch(whole)) and int(whole) == int(expected)
    one, other = float(expected), float(found)
    return Decimal(expected.decode()) == Decimal(found.decode()) or (
        tolerance > 0
        and max(abs(one), abs(other)) < math.inf
        and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    )


async def _copy_box(context: ScoringContext, spec: SandboxSpec, memory_mb: int, start: Snapshot | None) -> Sandbox:
    """Return a fresh box of this memory, with the program as it was before its first run."""
    resources = msgspec.structs.replace(spec.resources, memory_mb=memory_mb)
    box = await context.sandbox(msgspec.structs.replace(spec, resources=resources))
    if start is not None:
        await box.restore(start)
    return box


def _explain_end(ended: ExecResult) -> str | None:
    """Return how a run failed; None: it ended by itself, with exit status 0."""
    match ended.status:
        case "exited":
            return None if ended.exit_code == 0 else f"ended with exit status {ended.exit_code}"
        case "signalled":
            return f"was ended by signal {ended.signal}"
        case "timeout":
            return "took too long"
        case "oom":
            return "took too much memory"
        case "output_limit":
            return "wrote too much"
        case "gone":
            return "lost its box"


def _show(index: int, case: ProgramCase, run: _Run) -> JsonObject:
    return {
        "case": index,
        "stdin": case.stdin[:_MAX_SHOWN_LENGTH],
        "expected": (case.expected or "")[:_MAX_SHOWN_LENGTH],
        "found": run.ended.stdout[:_MAX_SHOWN_LENGTH].decode(errors="replace"),
        "why": run.miss,
    }
