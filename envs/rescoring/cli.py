"""This file holds the command that lets a scorer judge what is stored: ``rescore``."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agent_layer.errors import BadInputError, NotWholeError
from agent_layer.recorder import open_recorder
from agent_layer.schema import check_name
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store, takes_filters
from agent_layer.store.index import Filters
from envs.registry import hash_scorer
from envs.rescoring.rescore import RescoreOptions, Tally, Verdict, rescore
from envs.scorers import AGENT, load_scorer

_STOPPED_BY_KEYBOARD = 130


@takes_filters
def rescore_stored(
    context: typer.Context,
    scorer: Annotated[str, typer.Argument(help="module:function or a registered name.")],
    *,
    filters: Filters,
    name: Annotated[str | None, typer.Option(help="Judge this reward only.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Judge and report, but keep nothing.")] = False,
    slots: Annotated[int, typer.Option(min=1, help="Judgements at the same time.")] = 8,
) -> None:
    """Score matching trajectories again. Earlier rewards stay, superseded; a failing scorer changes none.

    Ctrl-C ends it well; the same command goes on where it was left.
    """
    settings: Settings = context.obj
    judging = _judging(scorer, name, settings, is_rehearsal=dry_run)
    tally = Tally()
    is_stopped = _judge_all(open_store(settings), filters, judging, slots, tally)
    _await_stored(settings)
    for line in tally.lines(judging, is_stopped=is_stopped):
        typer.echo(line)
    if is_stopped:
        raise typer.Exit(_STOPPED_BY_KEYBOARD)
    tally.raise_failures()


def _judging(name: str, reward_name: str | None, settings: Settings, *, is_rehearsal: bool) -> RescoreOptions:
    sys.path.insert(0, str(Path.cwd()))
    scorer = load_scorer(name)
    if scorer is None:
        raise BadInputError(
            f"rescore: expected a scorer, found {AGENT!r}: an agent that has ended reports nothing more; name a"
            " module:function"
        )
    return RescoreOptions(
        scorer=scorer,
        verifier_hash=hash_scorer(scorer),
        seconds=settings.score_seconds,
        name=None if reward_name is None else check_name(reward_name, "reward name"),
        is_rehearsal=is_rehearsal,
    )


def _judge_all(store: Store, filters: Filters, judging: RescoreOptions, slots: int, tally: Tally) -> bool:
    """Judge what the query finds; whether Ctrl-C ended it before it was done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("judged", total=store.count(**filters))

        def report(verdict: Verdict) -> None:
            tally.add(verdict)
            progress.advance(bar)

        try:
            asyncio.run(rescore(store, store.scan(**filters), judging, slots, report))
        except KeyboardInterrupt:
            return True
    return False


def _await_stored(settings: Settings) -> None:
    if pending := open_recorder(settings).flush(settings.flush_seconds).pending:
        raise NotWholeError(
            f"rescore: expected all rewards to be stored within {settings.flush_seconds:g} s, but {pending} wait in the"
            " log; they will count once the store can be reached, see shipper.log"
        )
