"""Checkpoints: directories that appear whole or not at all, with a cursor."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.infra import hold_alone, make_private, sync_path
from agent_layer.schema import CheckpointRef, Record
from agent_layer.settings import Settings
from trainer_adapter.lineage import write_parent
from trainer_adapter.tasks import Draw, StreamState

_CURSOR = "cursor.json"


def hold_run(settings: Settings, run: str) -> AbstractContextManager[None]:
    """Context manager: no other process of this machine trains or prepares the run during the block.

    Raises: BadInputError: one does.
    """
    return hold_alone(
        settings.dir / "runs" / run / "trainer.lock",
        f"run {run}: expected no other trainer in {settings.dir}, found one; stop it, or choose another run",
    )


class Cursor(Record, frozen=True, kw_only=True):
    """Position of training. Groups are acknowledged only after the checkpoint that contains them is on disk."""

    step: int = 0
    """Steps done."""
    policy_version: int | None = 0
    """Version of the weights in the checkpoint; None: they were not published."""
    first_version: int = 0
    """No group begins before this version serves: earlier ones are not ancestors of the weights."""
    num_asked: int = 0
    """Groups submitted so far."""
    open_positions: list[int] = []
    """Positions of those not trained or dropped yet, counted from 0 in order of submission."""
    open_starts: list[int] = []
    """[num_open] policy version from which each may begin; empty in checkpoints of older trainers."""
    open_tries: list[int] = []
    """[num_open] how often each was redone; empty in checkpoints of older trainers."""
    open_draws: list[Draw] = []
    """[num_open] task of each; empty in checkpoints of older trainers, whose open groups are not trained."""
    tasks: StreamState = StreamState()
    """Position in the sequence of tasks."""
    success_rates: dict[str, float] = {}
    """Success rates by task id, for curriculum and filters."""
    taken: list[str] = []
    """Groups trained since the checkpoint before; acknowledged next, and never trained again."""


class CheckpointDirectory:
    """The checkpoints of one run, in ``DIR/checkpoints/RUN``."""

    def __init__(self, settings: Settings, run: str) -> None:
        self._directory = settings.dir.absolute() / "checkpoints" / run

    def newest(self) -> tuple[Path, Cursor] | None:
        """Find the newest checkpoint; None when there is none."""
        found = self.all()
        return found[-1] if found else None

    def all(self) -> list[tuple[Path, Cursor]]:
        """Find all checkpoints, oldest first."""
        found = ((directory, _read_cursor(directory)) for directory in sorted(self._directory.glob("step-*")))
        return [(directory, cursor) for directory, cursor in found if cursor]

    def find(self, step: int) -> Path:
        """Find the checkpoint of a step.

        Raises: NotFoundError: there is none.
        """
        found = {cursor.step: directory for directory, cursor in self.all()}
        if step not in found:
            others = f"those of the steps {', '.join(map(str, found))}" if found else "no checkpoint"
            raise NotFoundError(
                f"step {step} of run {self._directory.name}: expected it in {self._directory}, found {others};"
                " choose one of 'agent-layer checkpoint list', or another --run"
            )
        return found[step]

    def save(self, cursor: Cursor, write: Callable[[Path], object]) -> None:
        """Write the checkpoint of ``cursor.step``; a crash in between leaves the earlier ones in place.

        It takes the place of another of the same step, which a trainer left that stopped before its next update.

        Args:
            cursor: position of training.
            write: writes weights and optimizer state into the directory it gets.
        """
        pending = self._directory / "pending"
        shutil.rmtree(pending, ignore_errors=True)
        make_private(pending.parent)
        pending.mkdir(mode=0o700)
        write(pending)
        (pending / _CURSOR).write_bytes(msgspec.json.encode(cursor))
        write_parent(pending, CheckpointRef(run=self._directory.name, step=cursor.step))
        for path in (*pending.rglob("*"), pending):
            sync_path(path)
        name = f"step-{cursor.step:06d}"
        before = sorted(one for one in self._directory.glob("step-*") if one.stem == name)
        pending.replace(self._directory / _following_name(name, before))
        sync_path(self._directory)
        for directory in before:
            self._delete(directory)

    def keep_newest(self, num_kept: int) -> None:
        """Delete all but the newest checkpoints."""
        for directory, _ in self.all()[:-num_kept]:
            self._delete(directory)

    def _delete(self, directory: Path) -> None:
        """Delete a checkpoint. Its name goes first, so that a crash leaves no half of one."""
        doomed = self._directory / "doomed"
        shutil.rmtree(doomed, ignore_errors=True)
        directory.replace(doomed)
        shutil.rmtree(doomed)


def _following_name(name: str, before: Sequence[Path]) -> str:
    """Return a name that sorts behind those of other checkpoints of the same step."""
    if not before:
        return name
    return f"{name}.{int(before[-1].suffix[1:] or 0) + 1:03d}"


def _read_cursor(directory: Path) -> Cursor | None:
    """Return the cursor of a checkpoint; None: its trainer has deleted it meanwhile."""
    try:
        return msgspec.json.decode((directory / _CURSOR).read_bytes(), type=Cursor)
    except FileNotFoundError:
        return None
