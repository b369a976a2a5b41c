"""The scorer of repaired code: inputs enter a fresh box, JSON comes out, and is compared outside of it."""

import difflib
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, cast

import msgspec

from agent_layer.schema import JsonObject
from agent_layer.schema.sandbox import Sandbox, SandboxSpec
from envs.grading import (
    Answer,
    Call,
    ForgedJsonError,
    ScoringContext,
    UnfitArtifactsError,
    Verdict,
    call_functions,
    equal_values,
    final_answer,
    prepare_box,
)
from envs.tasksets.repair.choices import Choices
from envs.tasksets.repair.tasks import PATCH_LINES, SOLVED, VERSION

_PLAYER: Final = "play_calls"
_PLAYER_SOURCE: Final = '''\
import importlib


def play_all(cases):
    """Return what the calls of each case returned."""
    return [play(module, calls) for module, calls in cases]


def play(module, calls):
    """Return (whether it returned, what, or the name of what it raised) of each call; a class makes the subject."""
    found = []
    subject = None
    for name, args in calls:
        is_class = name[0].isupper()
        try:
            if name[0] == ".":
                value = getattr(subject, name[1:])(*args)
            else:
                value = getattr(importlib.import_module(module), name)(*args)
        except Exception as error:
            found.append([False, type(error).__name__])
            if is_class:
                break
            continue
        if is_class:
            subject = value
        found.append([True, None if is_class else value])
    return found
'''
_BATCH: Final = 16
"""Checks of one process."""
_CALL_SECONDS: Final = 5.0
_SECONDS: Final = 40.0
_MAX_SOURCE_BYTES: Final = 1 << 16
_NUM_SHOWN: Final = 3


class _Check(msgspec.Struct, frozen=True):
    module: str
    calls: list[tuple[str, list[object]]]
    expected: list[object]


class _Grading(msgspec.Struct, frozen=True):
    checks: list[_Check]
    file: str = ""
    """File of level 0."""
    source: str = ""
    """Source of level 0: what the edit changes."""
    choices: Choices | None = None


class RepairScorer:
    """Solved is 1 when every hidden check passes, else 0. The size of the patch is a metric without weight."""

    version: ClassVar[str] = VERSION

    async def score(self, context: ScoringContext) -> Verdict:
        """Judge the files that the agent left, or its answer at level 0.

        Raises: SandboxError: no box could be made, or it was lost.
        """
        grading = msgspec.convert(context.task.grading, _Grading)
        try:
            if grading.choices is None:
                return await _score_files(context, grading)
            return await _score_answer(context, grading, grading.choices)
        except UnfitArtifactsError as error:
            return _verdict(is_solved=False, patch_lines=None, evidence={"error": str(error)})
        except ForgedJsonError as error:
            return Verdict(status="tampering", tampering=[str(error)])


async def _score_files(context: ScoringContext, grading: _Grading) -> Verdict:
    box = await prepare_box(context, files={f"{_PLAYER}.py": _PLAYER_SOURCE})
    before = {file: context.task.files[file] for file in context.task.artifacts}
    after = {file: await _read_source(box, file) for file in before}
    return await _play_checks(box, grading.checks, _count_changes(before, after))


async def _score_answer(context: ScoringContext, grading: _Grading, choices: Choices) -> Verdict:
    answer = final_answer(context.trajectory, context.result)
    edited = choices.apply(grading.source, answer)
    if edited is None:
        return _verdict(is_solved=False, patch_lines=None, evidence={"answer": answer[:200]})
    files = {f"{_PLAYER}.py": _PLAYER_SOURCE, grading.file: edited}
    box = await prepare_box(context, spec=context.task.sandbox or SandboxSpec(), files=files)
    return await _play_checks(box, grading.checks, 1)


async def _play_checks(box: Sandbox, checks: Sequence[_Check], patch_lines: int | None) -> Verdict:
    batches = [checks[start : start + _BATCH] for start in range(0, len(checks), _BATCH)]
    calls = [
        Call(call=f"{_PLAYER}:play_all", args=[[(check.module, check.calls) for check in batch]]) for batch in batches
    ]
    answers = await call_functions(box, calls, call_seconds=_CALL_SECONDS, seconds=_SECONDS)
    failed = [
        check.calls[-1][0]
        for batch, answer in zip(batches, answers, strict=True)
        for check, found in zip(batch, _split_answer(answer, len(batch)), strict=True)
        if not equal_values([_claim(one) for one in check.expected], found)
    ]
    evidence: JsonObject = {"checks": len(checks), "failed": len(failed), "shown": failed[:_NUM_SHOWN]}
    return _verdict(is_solved=not failed, patch_lines=patch_lines, evidence=evidence)


def _claim(expected: object) -> list[object]:
    """Return what the player answers to a call with this outcome: to return ``{"raises": …}`` is not to raise."""
    match expected:
        case {"raises": str(name)} if len(cast("JsonObject", expected)) == 1:
            return [False, name]
        case _:
            return [True, expected]


def _split_answer(answer: Answer, number: int) -> Sequence[object]:
    """Return the value of each case; None, which no case expects, where the answer has another form."""
    value: object = answer.value
    values = cast("list[object]", value) if isinstance(value, list) else []
    return values if len(values) == number else [None] * number


async def _read_source(box: Sandbox, file: str) -> str | None:
    try:
        return (await box.read(file, max_bytes=_MAX_SOURCE_BYTES)).decode("utf-8", "replace")
    except OSError:
        return None


def _count_changes(before: Mapping[str, str], after: Mapping[str, str | None]) -> int | None:
    """Return how many lines were added or removed; None: a file is not readable."""
    total = 0
    for file, source in before.items():
        changed = after[file]
        if changed is None:
            return None
        lines = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), n=0, lineterm=""))[2:]
        total += sum(line[:1] in "+-" for line in lines)
    return total


def _verdict(*, is_solved: bool, patch_lines: int | None, evidence: JsonObject) -> Verdict:
    scores = {SOLVED: float(is_solved)}
    if patch_lines is not None:
        scores[PATCH_LINES] = float(patch_lines)
    return Verdict(scores=scores, evidence=evidence)
