"""Fresh boxes with what is to be judged: the task's files, what the agent left, and files of the grading."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema.sandbox import Sandbox, SandboxSpec, Snapshot
from envs.grading.scorer import ScoringContext

_SHARE_OF_LIMIT: Final = 0.8
"""Share of ``score_seconds`` that judged code may use: one that is slow on purpose fails before its scorer is too
slow."""


class UnfitArtifactsError(AgentLayerError):
    """What the agent left cannot be put into a box: links that lead out, or a folder where the task has a file."""


def allow_seconds(context: ScoringContext, seconds: float) -> float:
    """Return how long judged code may run, so that its scorer still answers within the task's ``score_seconds``."""
    limit = context.task.limits.score_seconds
    return seconds if limit is None else min(seconds, _SHARE_OF_LIMIT * limit)


async def prepare_box(
    context: ScoringContext,
    *,
    spec: SandboxSpec | None = None,
    answer_path: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Sandbox:
    """Return a fresh box with the task's files, over them what the agent left, and over that ``files``.

    Args:
        context: the attempt to judge.
        spec: None: that of the agent's box.
        answer_path: file for the text that the agent returned; None: its files are judged.
        files: of the grading, by path.

    Raises:
        UnfitArtifactsError: what the agent left cannot be put there, which is the agent's own doing.
        SandboxError: the machine could not make a box, or lost it.
    """
    box = await context.sandbox(spec)
    below = {path: text for path, text in context.task.files.items() if not path.startswith("/")}
    if below:
        await box.restore(archive_files(below))
    for path in context.task.files.keys() - below:
        await box.write(path, context.task.files[path].encode("utf-8", "surrogateescape"))
    try:
        if context.artifacts is not None:
            await box.restore(context.artifacts)
        if answer_path is not None and isinstance(context.result, str):
            await box.restore(archive_files({answer_path: context.result}))
        if files:
            await box.restore(archive_files(files))
    except (OSError, UnicodeEncodeError) as error:  # the latter: the answer has lone surrogates
        raise UnfitArtifactsError(
            f"task {context.task.id!r}: what the agent left cannot be put into a fresh box, {error}; it scores 0"
        ) from error
    return box


def archive_files(files: Mapping[str, str]) -> Snapshot:
    """Return texts as a snapshot; equal texts give equal bytes.

    Raises: BadInputError: a path is not below the work directory.
    """
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, text in sorted(files.items()):
            parts = PurePosixPath(path)
            if parts.is_absolute() or ".." in parts.parts or not parts.parts:
                raise BadInputError(f"file {path!r}: expected a path below the work directory; correct the task")
            body = text.encode("utf-8", "surrogateescape")
            entry = tarfile.TarInfo(str(parts))
            entry.size, entry.mode = len(body), 0o644
            archive.addfile(entry, io.BytesIO(body))
    return Snapshot(archive=output.getvalue())
