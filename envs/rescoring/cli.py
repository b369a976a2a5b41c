"""Command ``rescore``: a scorer scores stored trajectories again."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_layer.errors import BadInputError, NotWholeError
from agent_layer.recorder import open_recorder
from agent_layer.schema import check_name
from agent_layer.settings import Settings
from agent_layer.store import Filters, Store, TrajectoryRow, open_store, takes_filters
from agent_layer.view import link_to
from envs.registry import hash_scorer
from envs.rescoring.rescore import RescoreOptions, Tally, Verdict, rescore
from envs.sandbox import PoolOptions, Sandbox, SandboxSpec, open_pool
from envs.scorers import AGENT, load_group_scorer, load_scorer
from tracer.transport import connect_gateway

_STOPPED_BY_KEYBOARD = 130


@takes_filters
def rescore_stored(
    context: typer.Context,
    scorer: Annotated[str, typer.Argument(help="module:function or a registered name.")],
    *,
    filters: Filters,
    name: Annotated[str | None, typer.Option(help="Score this reward only.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Score and report, but store nothing.")] = False,
    slots: Annotated[int, typer.Option(min=1, help="Scorers that run at the same time.")] = 8,
) -> None:
    """Score matching trajectories again. Earlier rewards stay, superseded; a failing scorer changes none.

    Ctrl-C ends it cleanly; the same command continues where it stopped.
    """
    settings: Settings = context.obj
    store = open_store(settings)
    options = _make_options(scorer, name, settings, is_dry_run=dry_run)
    tally = _rescore(settings, store.scan(**filters), store.count(**filters), options, slots)
    if link := link_to(settings, "trajectories", filters=filters):
        typer.echo(f"view: {link}", err=True)
    tally.raise_failures()


def rescore_rows(settings: Settings, scorer: str, rows: Iterator[TrajectoryRow], num_rows: int, slots: int = 8) -> None:
    """Score trajectories again as the command does, and print the same.

    Args:
        settings: locations of the store.
        scorer: ``module:function`` or a registered name.
        rows: of the trajectories.
        num_rows: their number, for the progress bar.
        slots: scorers that run at the same time.

    Raises:
        AgentFailedError: the scorer failed at least once.
        BadInputError: there is no such scorer.
        NotWholeError: not all rewards were stored in time.
        typer.Exit: Ctrl-C stopped it.
    """
    _rescore(settings, rows, num_rows, _make_options(scorer, None, settings, is_dry_run=False), slots).raise_failures()


def _rescore(
    settings: Settings, rows: Iterator[TrajectoryRow], num_rows: int, options: RescoreOptions, slots: int
) -> Tally:
    tally = Tally()
    is_stopped = _score_all(open_store(settings), rows, num_rows, options, slots, tally)
    if pending := open_recorder(settings).flush(settings.flush_seconds).pending:
        raise NotWholeError(
            f"rescore: not all rewards were stored within {settings.flush_seconds:g} s, {pending} wait in the log; they"
            " count once the store can be reached, see shipper.log"
        )
    for line in tally.lines(options, is_stopped=is_stopped):
        typer.echo(line)
    if is_stopped:
        raise typer.Exit(_STOPPED_BY_KEYBOARD)
    return tally


def _make_options(name: str, reward_name: str | None, settings: Settings, *, is_dry_run: bool) -> RescoreOptions:
    sys.path.insert(0, str(Path.cwd()))
    scorer = load_group_scorer(name) or load_scorer(name)
    if scorer is None:
        raise BadInputError(
            f"rescore: {AGENT!r} is no scorer that can run again, an agent that has ended reports nothing more; name a"
            " module:function"
        )
    return RescoreOptions(
        scorer=scorer,
        verifier_hash=hash_scorer(scorer),
        seconds=settings.score_seconds,
        scorer_name=name,
        gateway=connect_gateway(settings.gateway_urls, settings.api_key) if settings.gateway_urls else None,
        name=None if reward_name is None else check_name(reward_name, "reward name"),
        is_dry_run=is_dry_run,
    )


def _score_all(  # its parts
    store: Store, rows: Iterator[TrajectoryRow], num_rows: int, options: RescoreOptions, slots: int, tally: Tally
) -> bool:
    """Score trajectories; return whether Ctrl-C ended it early."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("scored", total=num_rows)

        def report(verdict: Verdict) -> None:
            tally.add(verdict)
            progress.advance(bar)

        async def score() -> None:
            async with open_pool(PoolOptions(max_running=4 * slots)) as pool:

                async def take_box(spec: SandboxSpec | None) -> Sandbox:
                    return await pool.take(spec or SandboxSpec(), owner="rescore")

                with_boxes = msgspec.structs.replace(options, take_box=take_box)
                await rescore(store, rows, with_boxes, slots, report)

        try:
            asyncio.run(score())
        except KeyboardInterrupt:
            return True
    return False
