"""Data-only scorer: inputs go into a fresh box, JSON comes out, and the comparison happens outside.

Why nothing can be forged: the expectation never enters the box, and the judged code decides about nothing but values.
It shares its interpreter with a small program that calls it. It may take that program over, patch it, end it early or
write its output: all that it can say is which values it claims, and a right value is a right answer.

Each call has a process of its own, forked before the judged code is imported, so that a call cannot disturb the next
one by accident. The calls of an attempt share one box; with ``isolated`` each has a fresh one, for checks of two calls
that must not share memory through files.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject
from agent_layer.schema.sandbox import ExecResult, Sandbox, SandboxSpec
from envs.grading.checks import ClaimedValue, run_checks
from envs.grading.plain import ForgedJsonError, check_plain, equal_values, read_json
from envs.grading.prepared_box import UnfitArtifactsError, allow_seconds, prepare_box
from envs.grading.scorer import ScoringContext, Verdict

PYTHON: Final = ("python3", "-I")
"""Interpreter in the box; ``-I`` keeps start-up hooks of the judged folder out."""
_PROGRAM: Final = (Path(__file__).parent / "guest" / "call_functions.py").read_text("utf-8")
_MAX_ANSWER: Final = 1 << 18
"""Bytes of one answer."""
_MAX_OUTPUT: Final = 8 << 20
_NUM_SHOWN: Final = 5
"""Failed cases that the evidence shows."""
_MAX_SHOWN_LENGTH: Final = 200


class Call(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call of the judged code; arguments are plain values, see ``plain.py``."""

    call: str
    """``module:function``, below the work directory."""
    args: list[object] = []
    kwargs: dict[str, object] = {}
    then: list[tuple[str, list[object] | None]] = []
    """Methods of what was returned, with arguments, called in order; None: an attribute. The value is the list of what
    these return."""
    mutates: bool = False
    """The value is a list: what was returned, and each argument as the call left it."""


class Case(Call, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call, and exactly one of three ways to judge what it returns."""

    expected: object | msgspec.UnsetType = msgspec.UNSET
    """Plain value that it must return."""
    raises: str | None = None
    """Name of the exception's type that it must raise."""
    check: str | None = None
    """``module:function`` of a ``Check``, which runs outside the box on plain values, in a child of the scorer."""
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Absolute and relative difference that two floats may have."""


class ValueGrading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Form of ``task.grading``; a list of cases will do, too."""

    cases: Annotated[list[Case], msgspec.Meta(min_length=1)]
    files: dict[str, str] = {}
    """Further files in the box, over those of the agent, by path."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call claims."""

    value: object = msgspec.field(default_factory=lambda: {"$object": "no answer"})
    """Plain value; without one it ended, or was too slow, before it answered, and equals nothing."""
    raised: str | None = None
    """Name of the exception's type; None: none."""


class _Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    answers: list[str | None]


class ValueScorer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Scores 1 when all cases of ``task.grading`` hold, else 0. Contract: ``Scorer``."""

    partial: bool = False
    """Score the share of cases that hold."""
    isolated: bool = False
    """Each case has a fresh box."""
    call_seconds: float = 5.0
    """Longest call; the first that is longer is the last, and the cases after it fail."""
    check_seconds: float = 5.0
    """Longest check; the first that is longer is the last, and the cases with checks after it fail."""
    seconds: float = 60.0
    """Longest time of all calls; shorter where the task limits ``score_seconds``. Later calls fail."""
    answer_path: str | None = None
    """File for the text that the agent returned; None: its files are judged."""
    spec: SandboxSpec | None = None
    """Box to judge in; None: that of the agent."""
    python: tuple[str, ...] = PYTHON
    """Interpreter in the box, with options."""
    reward: str | None = None
    """Name of the reward; None: the only one that the task declares, else ``reward``."""

    @property
    def version(self) -> str:
        """Differs where answers may differ."""
        return f"2 {self!r}"

    async def score(self, context: ScoringContext) -> Verdict:
        """Run all cases.

        Raises:
            BadInputError: the grading has another form.
            SandboxError: no box could be made, or it was lost.
        """
        grading = read_grading(context.task.grading, context.task.id)
        name = self.reward or next(iter(context.task.rewards), "reward")
        batches = [[case] for case in grading.cases] if self.isolated else [grading.cases]
        answers: list[Answer] = []
        left = allow_seconds(context, self.seconds)
        try:
            for batch in batches:
                if left <= 0:
                    answers += [Answer()] * len(batch)
                    continue
                box = await prepare_box(context, spec=self.spec, answer_path=self.answer_path, files=grading.files)
                began = time.monotonic()
                answers += await call_functions(
                    box, batch, call_seconds=self.call_seconds, seconds=left, python=self.python
                )
                left -= time.monotonic() - began
                if self.isolated:
                    await box.close()
        except UnfitArtifactsError as error:
            return Verdict(scores={name: 0.0}, evidence={"error": str(error)})
        except ForgedJsonError as error:
            return Verdict(status="tampering", tampering=[str(error)])
        misses = await self._find_misses(grading.cases, answers, max(left, allow_seconds(context, self.seconds) / 8))
        failed = [index for index, miss in enumerate(misses) if miss]
        share = 1 - len(failed) / len(grading.cases)
        return Verdict(
            scores={name: share if self.partial else float(not failed)},
            evidence={
                "cases": len(grading.cases),
                "failed": len(failed),
                "shown": [
                    _show(index, grading.cases[index], answers[index]) | {"why": misses[index]}
                    for index in failed[:_NUM_SHOWN]
                ],
            },
        )

    async def _find_misses(  # kept: score is near its limits
        self, cases: Sequence[Case], answers: Sequence[Answer], seconds: float
    ) -> list[str | None]:
        """Return why each answer is not what its case expects; None: it is."""
        requests = [
            ClaimedValue(check=case.check, args=case.args, value=answer.value)
            for case, answer in zip(cases, answers, strict=True)
            if case.check is not None
        ]
        checked = iter(await run_checks(requests, check_seconds=self.check_seconds, seconds=seconds))
        return [
            _miss(case, answer) if case.check is None else next(checked)
            for case, answer in zip(cases, answers, strict=True)
        ]


def read_grading(grading: object, task_id: str) -> ValueGrading:
    """Return the cases of a task.

    Raises: BadInputError: they have another form.
    """
    try:
        found = msgspec.convert({"cases": grading} if isinstance(grading, list) else grading, ValueGrading)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task_id!r}: its grading is no list of cases, {error}; correct it") from error
    for index, case in enumerate(found.cases):
        subject = f"task {task_id!r}, case {index}"
        ways = [case.expected is not msgspec.UNSET, case.raises is not None, case.check is not None]
        if sum(ways) != 1 or ":" not in case.call:
            raise BadInputError(
                f"{subject}: expected a call 'module:function' and one of expected, raises, check; correct it"
            )
        check_plain(case.expected, subject)
    return found


async def call_functions(
    box: Sandbox,
    calls: Sequence[Call],
    *,
    call_seconds: float = 5.0,
    seconds: float = 60.0,
    python: Sequence[str] = PYTHON,
) -> list[Answer]:
    """Call the judged code in a box; return what each call claims, in order. The base of data-only scorers.

    Args:
        box: with the judged code in its work directory.
        calls: to make.
        call_seconds: longest call; the calls after one that is longer have no answer.
        seconds: longest time of all.
        python: interpreter in the box, with options.

    Raises:
        ForgedJsonError: an answer has a form that honest code cannot produce.
        SandboxError: the box was lost.
    """
    requests = [{field: getattr(call, field) for field in Call.__struct_fields__} for call in calls]
    return await claim_answers(box, requests, call_seconds=call_seconds, seconds=seconds, python=python)


async def claim_answers(
    box: Sandbox, requests: Sequence[JsonObject], *, call_seconds: float, seconds: float, python: Sequence[str]
) -> list[Answer]:
    """Carry out requests in a box, each in a process of its own; return what each claims, in order.

    Args:
        box: with the judged code in its work directory.
        requests: fields of calls, or ``{"code": statements}`` that give ``FOUND`` a value.
        call_seconds: longest request; those after one that is longer have no answer.
        seconds: longest time of all.
        python: interpreter in the box, with options.

    Raises:
        ForgedJsonError: an answer has a form that honest code cannot produce.
        SandboxError: the box was lost.
    """
    body = msgspec.json.encode({"calls": requests, "seconds": call_seconds, "max_bytes": _MAX_ANSWER})
    ended = await box.exec([*python, "-c", _PROGRAM], stdin=body, seconds=seconds, max_output=_MAX_OUTPUT)
    answers = [Answer() if text is None else _read_answer(text) for text in _read_output(ended, len(requests))]
    return answers + [Answer()] * (len(requests) - len(answers))


def _read_output(ended: ExecResult, num_calls: int) -> list[str | None]:
    """Return the answers' texts; none unless the program ended by itself and wrote."""
    if ended.status != "exited" or not ended.stdout:
        return []
    found = read_json(ended.stdout)
    try:
        texts = msgspec.convert(found, _Report).answers
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ForgedJsonError(f"claim: the judged code wrote the report of its own judgement, {error!r}") from error
    is_short = 0 < len(texts) < num_calls and texts[-1] is None  # the last was too slow
    if len(texts) != num_calls and not is_short:
        raise ForgedJsonError(f"claim: {len(texts)} answers to {num_calls} calls")
    return texts


def _read_answer(text: str) -> Answer:
    """Return a claim: a value or the name of an exception, never both and nothing beside."""
    found = read_json(text)
    fields = cast("JsonObject", found) if isinstance(found, dict) else {}
    if len(fields) != 1 or ("value" not in fields and not isinstance(fields.get("raised"), str)):
        raise ForgedJsonError("claim: the judged code wrote its own answer, not one of a value and an exception")
    try:
        return msgspec.convert(found, Answer)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: a field's name has a lone surrogate
        raise ForgedJsonError(f"claim: the judged code wrote its own answer, {error!r}") from error


def _miss(case: Case, answer: Answer) -> str | None:
    if case.raises is not None:
        return None if answer.raised == case.raises else "differs"
    return None if equal_values(case.expected, answer.value, case.tolerance) else "differs"


def _show(index: int, case: Case, answer: Answer) -> JsonObject:
    expected = case.expected if case.check is None and case.raises is None else case.check or f"raises {case.raises}"
    return {
        "case": index,
        "call": case.call,
        "args": _shorten(case.args),
        "expected": _shorten(expected),
        "found": f"raised {answer.raised}"[:_MAX_SHOWN_LENGTH] if answer.raised else _shorten(answer.value),
    }


def _shorten(value: object) -> str:
    return repr(value)[:_MAX_SHOWN_LENGTH]
