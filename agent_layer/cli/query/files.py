"""Trajectories in files: ``store export parquet | jsonl`` writes them, ``store import`` reads conversations."""

import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Literal, TypeAlias

import msgspec
import typer

from agent_layer.cli.ui.output import show_progress
from agent_layer.errors import BackPressureError, BadInputError, CorruptRecordError, NotFoundError
from agent_layer.export import Feed, write_export
from agent_layer.infra import format_count
from agent_layer.ingest import ImportBatch, line_trajectory_id, make_records, read_line
from agent_layer.recorder import open_recorder
from agent_layer.schema import FINAL_STATUSES, check_name, trajectory_owner
from agent_layer.store import (
    Filters,
    Store,
    TrajectoryRow,
    open_store,
    owner_hash,
    parse_which,
    show_trajectory,
    takes_filters,
)
from agent_layer.times import parse_time

WhichStep: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Only this step of each: an index from 0, last, or tool:NAME for all that called it."),
]
_WAIT_SECONDS = 0.5
_REWRITE_SECONDS = 2.0
"""Between two rounds of ``--follow``; each round rewrites a part of up to 16 MB."""


@takes_filters
def parquet(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what ends or changes from now on.")] = False,
    contents: Annotated[bool, typer.Option("--contents", help="Messages, tools and states, too.")] = False,
    trajectories: Annotated[bool, typer.Option("--trajectories/--no-trajectories", help="That table.")] = True,
    steps: Annotated[bool, typer.Option("--steps/--no-steps", help="That table.")] = True,
    step: WhichStep = None,
    filters: Filters,
) -> None:
    """Keep a Parquet dataset equal to a query: DIR/{trajectories,steps}/*.parquet."""
    from agent_layer.export import Dataset, DatasetPlan, DatasetWriter, Table  # noqa: PLC0415  # comes with an extra

    store, left_out = open_store(context.obj), _Omissions()
    wanted: dict[Table, bool] = {"trajectories": trajectories, "steps": steps}
    which = None if step is None else parse_which(step)
    step_filters: Filters = {**filters, "step": which}
    plan = DatasetPlan(
        tables=[name for name, is_wanted in wanted.items() if is_wanted],
        contents=contents,
        filters=_written(step_filters),
    )
    with _stopping() as is_stopped, Dataset(directory, plan, time.time()) as dataset:
        feed = Feed(store, dataset, **_dated(step_filters, dataset.made_at))
        writer = DatasetWriter(store, feed, dataset, contents=contents, step=which, on_corrupt=left_out.note)
        if not (feed.resume() and follow):
            num_all = store.count(**step_filters)
            with show_progress("trajectories") as progress:
                num_written = writer.write_all(lambda num_done: progress(num_done, num_all), is_stopped)
            if num_written is None:
                typer.echo("stopped: not all is written; the same command again goes on", err=True)
                raise typer.Exit(1)
            typer.echo(f"{format_count(num_written, 'trajectory')} in {directory}")
        if follow:
            while not is_stopped():
                next_at = time.monotonic() + (_REWRITE_SECONDS if writer.write_changes(_WAIT_SECONDS) else 0.0)
                while time.monotonic() < next_at and not is_stopped():
                    time.sleep(_WAIT_SECONDS / 5)
    left_out.end()


@takes_filters
def jsonl(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="'-' is standard output.")],
    *,
    contents: Annotated[bool, typer.Option("--contents/--no-contents", help="Else hashes stand for them.")] = True,
    filters: Filters,
) -> None:
    """Write one line per trajectory, as 'show --format json' prints it."""
    store, left_out = open_store(context.obj), _Omissions()
    found = store.read(_ended(store, filters), contents=contents, on_corrupt=left_out.note)
    lines = (msgspec.json.encode(show_trajectory(row, trajectory)) + b"\n" for row, trajectory in found)
    if file == "-":
        num_written = _write_lines(sys.stdout.buffer, lines, store.count(**filters))
    else:
        with write_export(Path(file)) as path, path.open("wb") as opened:
            num_written = _write_lines(opened, lines, store.count(**filters))
    where = "on standard output" if file == "-" else f"in {file}"
    typer.echo(f"{format_count(num_written, 'trajectory')} {where}", err=file == "-")
    left_out.end()


@contextmanager
def _stopping() -> Generator[Callable[[], bool]]:
    """Finish the current write at the first Ctrl-C or SIGTERM; end at once at the second."""
    signals: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        signals.append(number)
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _written(filters: Filters) -> dict[str, object]:
    """Return the filters as they are after a round trip through JSON."""
    chosen = {name: value for name, value in filters.items() if value is not None}
    return msgspec.json.decode(msgspec.json.encode(chosen), type=dict[str, object])


def _dated(filters: Filters, made_at: float) -> Filters:
    """Count spans such as ``2h`` back from when the dataset was made, so that a continued export selects the same."""
    dated: Filters = {**filters}
    if isinstance(since := filters.get("since"), str):
        dated["since"] = parse_time(since, "since", made_at)
    if isinstance(until := filters.get("until"), str):
        dated["until"] = parse_time(until, "until", made_at)
    return dated


def _ended(store: Store, filters: Filters) -> Iterator[TrajectoryRow]:
    return (row for row in store.scan(**filters) if row.status in FINAL_STATUSES)


def _write_lines(file: IO[bytes], lines: Iterable[bytes], num_expected: int) -> int:
    """Write the lines; return how many there were."""
    number = 0
    with show_progress("trajectories") as progress:
        for number, line in enumerate(lines, start=1):
            file.write(line)
            progress(number, num_expected)
    file.flush()
    return number


class _Omissions:
    """Trajectories that could not be read: prints each, and ends the command with 1 if there was one."""

    def __init__(self) -> None:
        self._any = False

    def note(self, error: CorruptRecordError) -> None:
        self._any = True
        typer.echo(f"left out: {error}", err=True)

    def end(self) -> None:
        if self._any:
            raise typer.Exit(1)


_FLUSH_LINES = 1_000


def import_messages(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One conversation on each line.")],
    *,
    run: Annotated[str | None, typer.Option(help="Else AGENT_LAYER_RUN.")] = None,
    task_type: Annotated[str, typer.Option(help="Where a line names none.")] = "default",
    split: Annotated[Literal["train", "eval"], typer.Option()] = "train",
) -> None:
    """Import OpenAI-style messages, or requests with responses, as text. Each file is imported once.

    Every line is checked first; if one cannot be read, nothing is imported.
    """
    name, kind = check_name(run or context.obj.run, "run"), check_name(task_type, "task type")
    num_lines = 0
    for number, line in _lines(file):
        read_line(line, f"{file} line {number}")
        num_lines += 1
    if not num_lines:
        raise BadInputError(f"{file}: expected at least one conversation, found none; write one on each line")
    store, recorder = open_store(context.obj), open_recorder(context.obj)
    if context.obj.ingest_url is None:
        list(islice(store.objects.list("bucket-is-there/"), 1))  # else the shipper alone would learn that it is not
    batch = ImportBatch(run=name, split=split, task_type=kind, at=file.stat().st_mtime)
    num_new = 0
    with show_progress("conversations") as progress:
        for num_done, (number, line) in enumerate(_lines(file), start=1):
            if not _is_known(store, trajectory_id := line_trajectory_id(line, name)):
                recorder.append(*make_records(read_line(line, f"{file} line {number}"), trajectory_id, batch))
                num_new += 1
            if num_done % _FLUSH_LINES == 0 or num_done == num_lines:
                flushed = recorder.flush()
                if flushed.pending:
                    why = flushed.error or "see 'agent-layer doctor'"
                    raise BackPressureError(
                        f"import: expected all records to be stored by now, but {flushed.pending} are still in the"
                        f" local log, {why}; nothing is lost, import the file again"
                    )
                progress(num_done, num_lines)
    typer.echo(f"{format_count(num_lines, 'conversation')}, {num_new} of them new, in run {name}")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers."""
    try:
        with file.open("rb") as opened:
            yield from ((number, line) for number, line in enumerate(opened, start=1) if line.strip())
    except OSError as error:
        raise BadInputError(
            f"messages file {file}: expected a readable file, found {error.strerror}; check the path"
        ) from error


def _is_known(store: Store, trajectory_id: str) -> bool:
    """Return whether the trajectory is stored, or was stored and deleted."""
    if store.redis.hexists(store.keys.dead, owner_hash(trajectory_owner(trajectory_id))):
        return True
    try:
        store.row(trajectory_id)
    except NotFoundError:
        return False
    return True
