"""Command ``recall``: what learned from trajectories that turned out to be wrong, and a run without them."""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent_layer.errors import BadInputError
from agent_layer.infra import batched, format_count
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings
from agent_layer.store import Filters, Index, Store, find_unindexed, open_store, takes_filters
from envs.rescoring import rescore_rows
from trainer_adapter.config import load_config
from trainer_adapter.lineage import walk_parents
from trainer_adapter.recall.branch import branch_run
from trainer_adapter.recall.find import RecalledTrajectory, check_condition, find_recalled
from trainer_adapter.recall.trace import Recall, RecalledRun, trace_recalled
from trainer_adapter.tasks import read_exclusions

_PAGE = 256
_WIDE = 160
"""Columns of a table without a terminal."""


@takes_filters
def recall(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    *,
    filters: Filters,
    scorer: Annotated[
        str | None, typer.Option(help="Recall what this scorer judged: its name in tasks, or the name of a reward.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            help="Only judgements by this version of it: the start of 'verifier_hash' in 'show --format json'."
        ),
    ] = None,
    rescore: Annotated[
        bool, typer.Option("--rescore", help="Judge the recalled again with the scorers as they are here now.")
    ] = False,
    retrain: Annotated[bool, typer.Option("--retrain", help="Begin a new run at the last clean checkpoint.")] = False,
    new_run: Annotated[str | None, typer.Option("--as", show_default="RUN-recalled", help="Name of that run.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Train that run at once, as 'agent-layer train CONFIG --run NAME' does.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON object.")] = False,
) -> None:
    """Show what learned from trajectories that turned out to be wrong, and the last clean checkpoint.

    All conditions must hold. --run names the run whose checkpoints are looked at, and whose lineage goes through the
    runs that it branched from. Without it, each run that learned from them is shown.

    Shares are of sampled tokens: those of the recalled trajectories, and those of their whole groups, whose baseline
    a wrong reward moves. An update counts if it learned from a recalled judgement; one that was superseded before the
    update does not.

    The run of --retrain never draws the tasks of what was recalled, unless --scorer, --version or --engine says that
    the fault was not theirs.

        agent-layer recall --scorer my_module:score --version 3fa1
        agent-layer recall --task t-17 --run r --retrain --config run.yaml
    """
    settings: Settings = context.obj
    if not retrain and (config is not None or new_run is not None):
        raise BadInputError("recall: --as and --config are for --retrain, found none; add --retrain")
    if as_json and rescore:
        raise BadInputError("recall: --rescore prints what it judges, so --json cannot be all; give one of them")
    if config is not None:
        load_config(config.absolute())  # its errors come before anything is begun
    store, conditions = open_store(settings), Filters(**filters)
    run = conditions.pop("run", None)
    check_condition(conditions, scorer, version)
    console = Console(stderr=True)
    with console.status("reads judgements and updates") if console.is_terminal else nullcontext():
        found = _find(settings, store, run, conditions, scorer, version)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.flush()
    else:
        _print(found)
    if rescore:
        _rescore(settings, store, found.trajectories)
    if retrain:
        is_of_tasks = scorer is version is None and conditions.get("engine") is None
        excluded = {one.task_id for one in found.trajectories if one.task_id is not None} if is_of_tasks else set[str]()
        _retrain(settings, store, _choose_run(found, run), new_run, excluded, config)


def _find(  # the conditions
    settings: Settings, store: Store, run: str | None, filters: Filters, scorer: str | None, version: str | None
) -> Recall:
    if missing := find_unindexed(store.redis, store.keys, store.objects):  # what learned from it would look clean
        typer.echo(f"recall: reads {format_count(len(missing), 'segment')} that Redis does not know", err=True)
        store.admin.reindex(only=missing)
    if run is None:
        trajectories = list(find_recalled(store, [None], filters, scorer, version))
        known = [name.decode() for name in cast("set[bytes]", store.redis.smembers(store.keys.runs))]
        return trace_recalled(settings, store, known, trajectories)
    of_runs = [name for name, _ in walk_parents(store, run)]
    return trace_recalled(settings, store, [run], list(find_recalled(store, of_runs, filters, scorer, version)))


def _print(found: Recall) -> None:
    num = format_count(len(found.trajectories), "trajectory")
    typer.echo(
        f"recalled {num} of {format_count(len(found.groups), 'group')};"
        f" {format_count(found.num_learned, 'trajectory')} taught {format_count(len(found.updates), 'update')}"
    )
    if not found.updates:
        deleted = f"{format_count(found.num_deleted, 'rollout')} that updates learned from were deleted since"
        unknown = f"{deleted}: nothing tells whether they match"
        typer.echo(f"no update learned from them; {unknown if found.num_deleted else 'every checkpoint is clean'}")
        return
    table = Table(
        "run", "step", "version", "rollouts", "groups", "tokens", "share", "of groups", box=None, pad_edge=False
    )
    for one in found.updates:
        own, groups = (_percent(num, one.num_all_tokens) for num in (one.num_tokens, one.num_group_tokens))
        numbers = one.step, one.policy_version, one.num_rollouts, one.num_groups
        table.add_row(escape(one.run), *map(str, numbers), _count(one.num_tokens), own, groups)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
    for one in found.runs:
        typer.echo("\n".join(_describe_run(one)))


def _describe_run(one: RecalledRun) -> Iterator[str]:
    last = "all that it learned" if one.step is None else f"its last checkpoint, step {one.step}"
    own, groups = (_percent(num, one.num_all_tokens) for num in (one.num_tokens, one.num_group_tokens))
    yield (
        f"run {one.run}: {one.num_recalled_updates} of the {format_count(one.num_updates, 'update')} behind {last},"
        f" with {own} of their tokens ({groups} with their groups)"
    )
    if one.num_deleted:
        yield f"  {format_count(one.num_deleted, 'rollout')} of them deleted since: nothing tells whether they match"
    base = f" (the model that run {one.clean.run} began with)" if one.clean.step == 0 else ""
    yield f"  last clean: step {one.clean.step} of run {one.clean.run}{base}"
    if one.checkpoint is None:
        yield "  this machine keeps no checkpoint up to there"
    else:
        yield f"  last clean checkpoint: step {one.checkpoint.step} of run {one.checkpoint.run}, in {one.directory}"


def _count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _percent(part: int | None, whole: int | None) -> str:
    return "?" if part is None or whole is None else f"{100 * part / whole:.3g} %" if whole else "0 %"


def _rescore(settings: Settings, store: Store, trajectories: Sequence[RecalledTrajectory]) -> None:
    """Let each scorer judge again what it judged wrongly."""
    judged = defaultdict[str, list[str]](list)
    for one in trajectories:
        for name in one.scorers:
            judged[name].append(one.trajectory_id)
    index = Index(store.redis, store.keys)
    for name, ids in sorted(judged.items()):
        typer.echo(f"{name} judges {format_count(len(ids), 'trajectory')} again", err=True)
        rescore_rows(settings, name, (row for page in batched(ids, _PAGE) for row in index.rows(page)), len(ids))
    if left := len({one.trajectory_id for one in trajectories}) - len({one for ids in judged.values() for one in ids}):
        typer.echo(
            f"{format_count(left, 'trajectory')} not judged again: the judgement is superseded, or no record names its"
            " scorer; 'agent-layer rescore MODULE:FUNCTION' judges what a query finds",
            err=True,
        )


def _choose_run(found: Recall, run: str | None) -> RecalledRun:
    chosen = [one for one in found.runs if run in (None, one.run)]
    if len(chosen) == 1:
        return chosen[0]
    if not chosen:
        raise BadInputError("recall: --retrain: expected a run that learned from them, found none; there is no need")
    raise BadInputError(
        f"recall: --retrain: expected one run, found {', '.join(one.run for one in chosen)}; choose with --run"
    )


def _retrain(
    settings: Settings, store: Store, old: RecalledRun, name: str | None, excluded: set[str], config: Path | None
) -> None:
    name = name or f"{old.run}-recalled"
    excluded = excluded.union(*(one.ids for one in read_exclusions(settings, old.run)))
    model = None if config is None else load_config(config.absolute()).model
    parent = branch_run(settings, store, old.clean, name, excluded, model)
    open_recorder(settings).flush(settings.flush_seconds)
    begins = "the model of its configuration" if parent is None else f"step {parent.step} of run {parent.run}"
    without = f", without {format_count(len(excluded), 'task')}" if excluded else ""
    typer.echo(f"run {name} begins with {begins}{without}", err=True)
    if config is None:
        typer.echo(f"'agent-layer train CONFIG --run {name}' trains it", err=True)
        return
    command = [sys.executable, "-m", "agent_layer.cli", f"--dir={settings.dir}", "train", str(config), "--run", name]
    sys.stdout.flush()
    os.execv(sys.executable, command)
