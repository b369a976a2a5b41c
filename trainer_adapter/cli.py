"""This file holds the command that rebuilds what was trained: ``replay``."""

from pathlib import Path
from typing import Annotated

import typer

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.schema.batch import TrainedBatch
from agent_layer.settings import Settings
from agent_layer.store.batches import list_batches
from agent_layer.store.store import Store, open_store
from trainer_adapter.replaying import Replay, rebuild_batch

__all__ = ["register"]

_OUT = "Directory for the batches, one msgpack file each; none for a batch of which rollouts were deleted."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    context: typer.Context,
    *,
    run: Annotated[str | None, typer.Option(help="Else AGENT_LAYER_RUN.")] = None,
    step: Annotated[int | None, typer.Option(min=1, help="This update only; the first is 1.")] = None,
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
) -> None:
    """Rebuild what each update of a run learned from, and compare it with what was trained, byte for byte.

    Judgements that came after an update change nothing. Of a step that was trained again after a kill, the later
    batch is rebuilt: the weights that learned from the earlier one are gone. Rollouts that were deleted since are
    counted, and all others compared.
    """
    settings: Settings = context.obj
    store = open_store(settings)
    differences: list[str] = []
    for record in _choose(store, run or settings.run, step):
        replayed = rebuild_batch(record, store.get)
        differences += replayed.differences
        typer.echo(_line(replayed))
        if out is not None and not record.num_deleted:
            _write(out, replayed)
    if differences:
        raise CorruptRecordError(
            f"replay: expected what was trained, found {len(differences)} differences; the first: {differences[0]};"
            " 'agent-layer store check' tells whether bytes are damaged"
        )


def _choose(store: Store, run: str, step: int | None) -> list[TrainedBatch]:
    records = [record for record in list_batches(store.redis, store.keys, run) if step in (None, record.step)]
    if records:
        return records
    subject = f"run {run!r}" if step is None else f"step {step} of run {run!r}"
    raise NotFoundError(
        f"{subject}: expected the record of what was trained, found none; check the name, or run 'agent-layer store"
        " reindex' if the run is older than the index"
    )


def _line(replayed: Replay) -> str:
    record = replayed.record
    num_rollouts = len(record.rollouts) + record.num_deleted
    counts = f"{num_rollouts:4d} rollouts {record.num_samples:4d} samples {record.batch_hash}"
    verdict = "differs" if replayed.differences else "identical"
    if record.num_deleted:
        verdict = f"deleted: {record.num_deleted} rollouts, the rest {verdict}"
    line = f"step {record.step:4d}  version {record.policy_version:4d}  {counts}  {verdict}"
    return "\n".join([line, *(f"  {difference}" for difference in replayed.differences)])


def _write(directory: Path, replayed: Replay) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"step-{replayed.record.step:06d}.msgpack").write_bytes(replayed.content)
