"""This file holds the commands that write trajectories into files: ``store export parquet | jsonl | verl``."""

import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

import msgspec
import typer

from agent_layer.cli.filters import parse_which, takes_filters
from agent_layer.cli.progress import show_progress
from agent_layer.errors import CorruptRecordError
from agent_layer.export.feed import Feed
from agent_layer.export.files import replacing
from agent_layer.schema.rollout import FINAL_STATUSES
from agent_layer.store.display import show_trajectory
from agent_layer.store.filters import Filters
from agent_layer.store.rows import TrajectoryRow
from agent_layer.store.store import Store, open_store
from agent_layer.store.times import parse_time

if TYPE_CHECKING:  # comes with an extra
    from agent_layer.export.keeping import Keeper

__all__ = ["export_group"]

WhichStep: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Only this step of each: an index from 0, last, or tool:NAME for all that called it."),
]
_WAIT_SECONDS = 0.5
_REWRITE_SECONDS = 2.0
"""Between two rounds of ``--follow``: each writes a part of up to 16 MB again."""


def export_group() -> typer.Typer:
    """Give the group of commands."""
    group = typer.Typer(help="Write trajectories that have ended into files.", no_args_is_help=True)
    group.command()(takes_filters(parquet))
    group.command()(takes_filters(jsonl))
    group.command()(takes_filters(verl))
    return group


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
    """Keep a Parquet dataset equal to an answer: DIR/trajectories/*.parquet and DIR/steps/*.parquet."""
    from agent_layer.export.dataset import Dataset, Plan, Table  # noqa: PLC0415  # comes with an extra
    from agent_layer.export.keeping import Keeper  # noqa: PLC0415

    store, left_out = open_store(context.obj), _LeftOut()
    wanted: dict[Table, bool] = {"trajectories": trajectories, "steps": steps}
    which = None if step is None else parse_which(step)
    asked: Filters = {**filters, "step": which}
    plan = Plan(
        tables=[name for name, is_wanted in wanted.items() if is_wanted], contents=contents, filters=_written(asked)
    )
    with _stopping() as is_stopped, Dataset(directory, plan, time.time()) as dataset:
        feed = Feed(store, dataset, **_dated(asked, dataset.made_at))
        keeper = Keeper(store, feed, dataset, contents=contents, step=which, on_corrupt=left_out.note)
        if not (feed.resume() and follow):
            num_all = store.count(**asked)
            with show_progress("trajectories") as progress:
                num_written = keeper.fill(lambda num_done: progress(num_done, num_all), is_stopped)
            if num_written is None:
                typer.echo("stopped: not all is written; the same command again goes on", err=True)
                raise typer.Exit(1)
            typer.echo(f"{num_written} trajectories in {directory}")
        if follow:
            _follow(keeper, is_stopped)
    left_out.end()


def jsonl(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="'-' is standard output.")],
    *,
    contents: Annotated[bool, typer.Option("--contents/--no-contents", help="Else hashes stand for them.")] = True,
    filters: Filters,
) -> None:
    """Write one line for each trajectory: what 'show --format json' shows of it."""
    store, left_out = open_store(context.obj), _LeftOut()
    found = store.read(_ended(store, filters), contents=contents, on_corrupt=left_out.note)
    lines = (msgspec.json.encode(show_trajectory(row, trajectory)) + b"\n" for row, trajectory in found)
    if file == "-":
        _write_lines(sys.stdout.buffer, lines, store.count(**filters))
    else:
        with replacing(Path(file)) as path, path.open("wb") as opened:
            _write_lines(opened, lines, store.count(**filters))
    left_out.end()


def verl(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.parquet")],
    *,
    filters: Filters,
) -> None:
    """Write the tasks of the trajectories as veRL's own dataset: one row for each task, its prompt and its grading."""
    from agent_layer.export.verl import first_of_each_task, verl_row, write_verl  # noqa: PLC0415  # comes with an extra

    store, left_out = open_store(context.obj), _LeftOut()
    rows = first_of_each_task(_ended(store, filters))
    found = store.read(rows, on_corrupt=left_out.note)
    tasks = (verl_row(trajectory, index) for index, (_, trajectory) in enumerate(found))
    num_written, num_left_out = write_verl(file, tasks)
    typer.echo(f"{num_written} tasks in {file}")
    if num_left_out:
        typer.echo(f"left out: {num_left_out} tasks whose prompt is not known, or is not text alone", err=True)
    left_out.end()


def _follow(keeper: "Keeper", is_stopped: Callable[[], bool]) -> None:
    while not is_stopped():
        next_at = time.monotonic() + (_REWRITE_SECONDS if keeper.keep_current(_WAIT_SECONDS) else 0.0)
        while time.monotonic() < next_at and not is_stopped():
            time.sleep(_WAIT_SECONDS / 5)


@contextmanager
def _stopping() -> Generator[Callable[[], bool]]:
    """Let what is being written be finished at the first Ctrl-C or SIGTERM; the second one ends at once."""
    asked: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        asked.append(number)
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _written(filters: Filters) -> dict[str, object]:
    """The filters as JSON gives them back."""
    asked = {name: value for name, value in filters.items() if value is not None}
    return msgspec.json.decode(msgspec.json.encode(asked), type=dict[str, object])


def _dated(filters: Filters, made_at: float) -> Filters:
    """Let spans such as ``2h`` count back from when the dataset was made, however often it is taken up again."""
    dated: Filters = {**filters}
    if isinstance(since := filters.get("since"), str):
        dated["since"] = parse_time(since, "since", made_at)
    if isinstance(until := filters.get("until"), str):
        dated["until"] = parse_time(until, "until", made_at)
    return dated


def _ended(store: Store, filters: Filters) -> Iterator[TrajectoryRow]:
    return (row for row in store.scan(**filters) if row.status in FINAL_STATUSES)


def _write_lines(file: IO[bytes], lines: Iterable[bytes], num_lines: int) -> None:
    with show_progress("trajectories") as progress:
        for number, line in enumerate(lines, start=1):
            file.write(line)
            progress(number, num_lines)
    file.flush()


class _LeftOut:
    """Says which trajectories could not be read, and ends the command with 1 where there were any."""

    def __init__(self) -> None:
        self._any = False

    def note(self, error: CorruptRecordError) -> None:
        self._any = True
        typer.echo(f"left out: {error}", err=True)

    def end(self) -> None:
        if self._any:
            raise typer.Exit(1)
