"""Scorers of Harbor tasks: the tests run in a fresh box, on what the agent left, and write the reward.

shared    everything that the agent changed travels into a fresh box of the same image; the tests are put there then
separate  the tests have an image of their own, and only the declared artifacts travel, without links

The reward is read as data: a small regular file with finite numbers. Where the tests write none, they run again
without the agent's files: if they write one then, the agent's work is at fault, and scores 0; else it is null.
In a shared box the judged code can change what the tests run with, so its verdicts carry ``judge: shared``.
"""

import fnmatch
import io
import math
import re
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final, Literal, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, Task
from agent_layer.schema.sandbox import Sandbox, SandboxSpec, Snapshot
from envs.grading import ForgedJsonError, ScoringContext, Verdict, read_json
from envs.tasksets.harbor.directory import pack_tree, read_task_directory
from envs.tasksets.harbor.egress import open_network
from envs.tasksets.harbor.task_file import Artifact

LOGS: Final = "/logs/verifier"
TESTS: Final = "/tests"
_REWARD_FILES: Final = ("reward.json", "reward.txt")
"""The first that is there counts."""
_OUTPUT: Final = f"{LOGS}/test-stdout.txt"
_MAX_REWARD_BYTES: Final = 64 << 10
_MAX_REWARDS: Final = 100
_MAX_SHOWN_LENGTH: Final = 2000
_NUMBER: Final = re.compile(r"[+-]?(\d{1,300}(\.\d{0,300})?|\.\d{1,300})([eE][+-]?\d{1,4})?")
_RUN: Final = f"chmod +x {TESTS}/test.sh 2>/dev/null; exec {TESTS}/test.sh > {_OUTPUT} 2>&1"


class HarborGrading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Form of ``task.grading``."""

    directory: str
    """The task's directory on the machine of the scorer."""
    digest: str
    """Digest of the directory as it was imported."""
    spec: SandboxSpec
    """Box of the tests."""
    has_tests: bool = False
    """The image of the tests has them already."""
    seconds: float
    """Longest run of the tests."""
    env: dict[str, str] = {}
    artifacts: list[Artifact] = []
    """What travels to a verifier of its own."""


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the tests."""

    scores: dict[str, float] = {}
    why: str = ""
    """Why there are no scores."""
    output: str = ""


class _Verifier(ABC):
    """Runs the tests of a task. Contract: ``Scorer``."""

    version: ClassVar[str] = "1"
    judge: ClassVar[Literal["own", "shared"]] = "own"
    _mode: ClassVar[Literal["shared", "separate"]]

    async def score(self, context: ScoringContext) -> Verdict:
        """Run the tests on what the agent left.

        Raises:
            BadInputError: the task's directory is gone, or was changed.
            SandboxError: no box could be made, or it was lost.
        """
        grading = read_grading(context.task)
        left = context.artifacts
        kept = None if left is None else self._choose_files(left, grading)
        outcome = await self._run_tests(context, grading, kept)
        evidence: JsonObject = {"output": outcome.output, "error": outcome.why}
        if outcome.scores:
            return Verdict(scores=outcome.scores, evidence=evidence, judge=self.judge)
        without = await self._run_tests(context, grading, None)
        if without.scores:
            why = f"{outcome.why}; without the agent's files they write one, so it is the agent's doing"
            evidence = {"output": outcome.output, "error": why}
            return Verdict(scores={"reward": 0.0}, evidence=evidence, judge=self.judge)
        why = f"{outcome.why}, nor without the agent's files: {without.why}. {without.output}"
        return Verdict(status="verifier_error", evidence={"error": why}, judge=self.judge)

    @abstractmethod
    def _choose_files(self, left: Snapshot, grading: HarborGrading) -> Snapshot: ...

    async def _run_tests(self, context: ScoringContext, grading: HarborGrading, left: Snapshot | None) -> _Outcome:
        directory = Path(grading.directory)
        tests = None if grading.has_tests else pack_tree(directory / "tests", TESTS, directory)
        box = await context.sandbox(grading.spec)
        try:
            try:
                for files in (left, _make_folders(), tests):
                    if files is not None:
                        await box.restore(files)
            except OSError as error:
                return _Outcome(why=f"what the agent left cannot be put into a fresh box, {error}")
            async with open_network(box):
                ran = await box.exec(["/bin/sh", "-c", _RUN], env=grading.env, seconds=grading.seconds)
            if ran.status != "exited":
                return _Outcome(why=f"the tests ended by {ran.status}", output=await _read_output(box))
            try:
                scores, why = await _read_reward(box), ""
            except (OSError, BadInputError) as error:
                scores, why = {}, f"the tests wrote no reward, {error}; their exit status was {ran.exit_code}"
            return _Outcome(scores=scores, why=why, output=await _read_output(box))
        finally:
            await box.close()


class SharedVerifier(_Verifier):
    """Tests in a fresh box with everything that the agent changed."""

    judge: ClassVar[Literal["own", "shared"]] = "shared"

    def _choose_files(self, left: Snapshot, grading: HarborGrading) -> Snapshot:  # noqa: ARG002  # the base's own
        """Leave out what would stand in the place of the tests and of their results."""
        own = ("/tests", "/logs/verifier")

        def keeps(member: tarfile.TarInfo) -> bool:
            name = member.name.rstrip("/")
            return not any(_is_below(name, one) for one in own) and (member.isdir() or not _is_below(own[1], name))

        return _filter_archive(left, keeps)


class SeparateVerifier(_Verifier):
    """Tests in a box of their own, with the declared artifacts."""

    def _choose_files(self, left: Snapshot, grading: HarborGrading) -> Snapshot:
        """Keep what is declared; a link could lead to the tests' own files."""

        def keeps(member: tarfile.TarInfo) -> bool:
            return (member.isreg() or member.isdir()) and any(
                _is_below(member.name, one.source.rstrip("/") or "/") and not _is_excluded(member.name, one)
                for one in grading.artifacts
            )

        return _filter_archive(left, keeps)


def read_grading(task: Task) -> HarborGrading:
    """Return the grading of a task, whose directory is as it was.

    Raises: BadInputError: it has another form, or the directory is gone or was changed.
    """
    try:
        grading = msgspec.convert(task.grading, HarborGrading)
    except msgspec.ValidationError as error:
        raise BadInputError(f"task {task.id!r}: is no imported Harbor task, {error}; import its directory") from error
    directory = Path(grading.directory)
    if read_task_directory(directory, directory).digest != grading.digest:
        raise BadInputError(
            f"task {task.id!r}: {directory} was changed since its import; run 'agent-layer tasksets import' again"
        )
    return grading


def read_reward_file(name: str, content: bytes) -> dict[str, float]:
    """Return the scores in a reward file: one number as text, or a number or an object of numbers as JSON.

    An object without ``reward`` has the mean of its numbers as such.

    Raises: BadInputError: it holds something else.
    """
    if name.endswith(".txt"):
        text = content.decode("ascii", "replace").strip()
        if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
            raise BadInputError(f"{name}: expected one finite number, found {text[:60]!r}; write such as 1 or 0.5")
        return {"reward": float(text)}
    try:
        found = read_json(content)
    except (ForgedJsonError, UnicodeDecodeError) as error:
        raise BadInputError(f"{name}: expected numbers as JSON, found {error}; correct it") from error
    named = cast("dict[str, object]", found) if isinstance(found, dict) else {"reward": found}
    scores = {key: float(value) for key, value in named.items() if isinstance(value, int | float) and _fits(value)}
    if len(scores) != len(named) or not 0 < len(scores) <= _MAX_REWARDS:
        wrong = next((f"{key} = {value!r:.60}" for key, value in named.items() if key not in scores), "none")
        raise BadInputError(f"{name}: expected 1 to {_MAX_REWARDS} finite numbers by name, found {wrong}; correct it")
    return scores if "reward" in scores else {"reward": sum(scores.values()) / len(scores), **scores}


def _fits(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


async def _read_reward(box: Sandbox) -> dict[str, float]:
    entries = {one.name: one for one in await box.list(LOGS)}
    name = next((name for name in _REWARD_FILES if name in entries), None)
    if name is None:
        raise BadInputError(f"neither {' nor '.join(_REWARD_FILES)} is in {LOGS}")
    if entries[name].type != "file" or not 0 < entries[name].size_bytes <= _MAX_REWARD_BYTES:
        raise BadInputError(f"{name}: expected a regular file of 1 to {_MAX_REWARD_BYTES} bytes; write one")
    return read_reward_file(name, await box.read(f"{LOGS}/{name}", max_bytes=_MAX_REWARD_BYTES))


async def _read_output(box: Sandbox) -> str:
    try:
        content = await box.read(_OUTPUT)
    except OSError:
        return ""
    return content[-_MAX_SHOWN_LENGTH:].decode("utf-8", "replace")


def _make_folders() -> Snapshot:
    """Return the folders that tests expect, empty."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("/logs", "/logs/agent", "/logs/artifacts", LOGS):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o777
            archive.addfile(member)
    return Snapshot(archive=buffer.getvalue())


def _filter_archive(left: Snapshot, keeps: Callable[[tarfile.TarInfo], bool]) -> Snapshot:
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(left.archive)) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in source:
            if keeps(member):
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
    return Snapshot(archive=buffer.getvalue())


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _is_excluded(path: str, artifact: Artifact) -> bool:
    below = path.removeprefix(artifact.source.rstrip("/")).strip("/")
    parts = below.split("/")
    places = ["/".join(parts[: number + 1]) for number in range(len(parts))] + parts
    return any(fnmatch.fnmatchcase(place, pattern.strip("/")) for pattern in artifact.exclude for place in places)
