"""This file holds the command that imports logs of messages: ``store import``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from agent_layer.cli.progress import show_progress
from agent_layer.errors import BackPressureError, BadInputError, NotFoundError
from agent_layer.ingest.logged import read_line
from agent_layer.ingest.messages import Batch, records_of, trajectory_id_of_line
from agent_layer.recorder.log import Recorder, open_recorder
from agent_layer.schema.ids import check_name
from agent_layer.store.index import owner_hash
from agent_layer.store.store import Store, open_store

__all__ = ["import_messages"]

_FLUSH_LINES = 1_000


def import_messages(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One conversation on each line.")],
    *,
    run: Annotated[str | None, typer.Option(help="Else AGENT_LAYER_RUN.")] = None,
    task_type: Annotated[str, typer.Option(help="Where a line names none.")] = "default",
    split: Annotated[Literal["train", "eval"], typer.Option()] = "train",
) -> None:
    """Import OpenAI-style messages, or requests with their responses, as text. Importing a file twice imports it once.

    Every line is checked first; where one cannot be read, nothing is imported.
    """
    name, kind = check_name(run or context.obj.run, "run"), check_name(task_type, "task type")
    num_lines = 0
    for number, line in _lines(file):
        read_line(line, f"{file} line {number}")
        num_lines += 1
    if not num_lines:
        raise BadInputError(f"{file}: expected at least one conversation, found none; write one on each line")
    store, recorder = open_store(context.obj), open_recorder(context.obj)
    batch = Batch(run=name, split=split, task_type=kind, at=file.stat().st_mtime)
    num_new = 0
    with show_progress("conversations") as progress:
        for num_done, (number, line) in enumerate(_lines(file), start=1):
            if not _is_known(store, trajectory_id := trajectory_id_of_line(line, name)):
                recorder.append(*records_of(read_line(line, f"{file} line {number}"), trajectory_id, batch))
                num_new += 1
            if num_done % _FLUSH_LINES == 0 or num_done == num_lines:
                _flush(recorder)
                progress(num_done, num_lines)
    typer.echo(f"{num_lines} conversations, {num_new} of them new, in run {name}")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, with their numbers."""
    try:
        with file.open("rb") as opened:
            yield from ((number, line) for number, line in enumerate(opened, start=1) if line.strip())
    except OSError as error:
        raise BadInputError(
            f"messages file {file}: expected a readable file, found {error.strerror}; check the path"
        ) from error


def _is_known(store: Store, trajectory_id: str) -> bool:
    """Whether it is stored, or was and has been deleted."""
    if store.redis.hexists(store.keys.dead, owner_hash(trajectory_id)):
        return True
    try:
        store.row(trajectory_id)
    except NotFoundError:
        return False
    return True


def _flush(recorder: Recorder) -> None:
    if pending := recorder.flush().pending:
        raise BackPressureError(
            f"import: expected all records to be stored by now, but {pending} are still in the local log; nothing is"
            " lost, see 'agent-layer doctor', and import the file again"
        )
