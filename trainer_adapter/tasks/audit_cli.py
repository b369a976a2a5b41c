"""Command ``checkpoint audit``: proof that held-out tasks were not learned."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from agent_layer.errors import BadInputError
from agent_layer.infra import make_private, replace_file
from agent_layer.schema import AuditVerdict, CheckpointRef, HeldOutTasks, check_name
from agent_layer.settings import Settings
from agent_layer.store import open_store
from trainer_adapter.lineage import read_parent
from trainer_adapter.tasks.audit import Audit, LearnedTask, audit_checkpoint
from trainer_adapter.tasks.held_out import read_held_out, read_left_out, read_named_sets

_STEP: Final = re.compile("[0-9]{1,18}")
_MAX_UPDATES: Final = 8
"""Updates that are shown of each task."""


def audit(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    checkpoint: Annotated[
        str, typer.Argument(help="Step of 'agent-layer checkpoint list', or the directory of an exported model.")
    ],
    *,
    run: Annotated[str | None, typer.Option(help="Of a step; else AGENT_LAYER_RUN.")] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|DIR|TASKSET", help="Held-out tasks, repeatable; none: those that the run held out."),
    ] = None,
    level: Annotated[int, typer.Option(min=0, help="Level of task sets.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Most tasks of each; a task set has 50 without it.")] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--format")] = "table",
) -> None:
    """Prove that no update behind a checkpoint learned from a held-out task, or list those that did.

    Walks back over the updates of the run, and of the runs and warm starts (SFT, DPO) that its first weights are from.
    Compared are inputs, texts, declared repositories and 8-grams. Near-duplicates are listed with their share of all
    trained tokens; they count as learned where the set declares 'holdout: near'. Exit 1 if one was learned, or if
    something that was trained cannot be compared, because it was deleted or never recorded. The run's page shows the
    last result.

        agent-layer checkpoint audit 200 --run nightly
        agent-layer checkpoint audit ./my-model --held-out test.jsonl --held-out repair
    """
    settings: Settings = context.obj
    ref = (
        CheckpointRef(run=check_name(run or settings.run, "run"), step=int(checkpoint))
        if _STEP.fullmatch(checkpoint)
        else None
    )
    if (ref := ref or read_parent(Path(checkpoint))) is None:
        raise BadInputError(
            f"checkpoint {checkpoint!r}: expected a step, or the directory of a checkpoint or of a model that"
            " 'agent-layer checkpoint export' wrote, found none; see 'agent-layer checkpoint list'"
        )
    if held_out:
        sets = read_named_sets(held_out, run=ref.run, level=level, limit=limit)
    else:
        sets = read_held_out(settings, ref.run)
    if not sets:
        raise BadInputError(
            f"checkpoint audit: expected held-out tasks, but run {ref.run} recorded none here; name them with"
            " --held-out, or in the run's configuration"
        )
    console = Console(stderr=True)
    columns = ("groups", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        at = bar.add_task("audit", total=None)
        found = audit_checkpoint(
            open_store(settings),
            ref,
            HeldOutTasks(sets),
            settings.dir / "runs",
            lambda num_done, num_all: bar.update(at, completed=num_done, total=num_all),
        )
    directory = settings.dir / "runs" / ref.run
    with suppress(OSError):  # an auditor may be allowed to read alone: then the page does not show it
        make_private(directory)
        replace_file(directory / "audit.json", msgspec.json.encode(_summarise(found, time.time())))
    if output == "json":
        typer.echo(msgspec.json.encode(found))
    else:
        typer.echo("\n".join(_write_audit(found, len(read_left_out(settings, ref.run)))))
    raise typer.Exit(0 if found.is_proven else 1)


def _summarise(found: Audit, now: float) -> AuditVerdict:
    num_learned = sum(one.num_tokens for one in found.learned)
    return AuditVerdict(
        step=found.step,
        audited_at=now,
        is_proven=found.is_proven,
        num_held_out=found.num_held_out,
        num_learned=len(found.learned),
        num_near=len(found.near),
        learned_share=num_learned / found.num_tokens if found.num_tokens else None,
    )


def _write_audit(found: Audit, num_left_out: int) -> Iterator[str]:
    yield (
        f"run {found.run}, step {found.step}: {found.num_updates:,} updates, {found.num_groups:,} groups of"
        f" {found.num_tasks:,} tasks, {found.num_tokens:,} trained tokens; {found.num_held_out:,} held-out"
        " tasks"
    )
    if num_left_out:
        yield f"left out when tasks were drawn: {num_left_out:,}, by name in runs/{found.run}/left_out.jsonl"
    yield f"learned from held-out tasks: {len(found.learned)}{_share(found.learned, found.num_tokens)}"
    yield from map(_write_learned, found.learned)
    yield f"near-duplicates, not refused: {len(found.near)}{_share(found.near, found.num_tokens)}"
    yield from map(_write_learned, found.near)
    if found.num_deleted or found.num_unknown:
        yield (
            f"cannot be compared: {found.num_deleted:,} deleted rollouts, {found.num_unknown:,} groups whose task is"
            " not recorded"
        )
    for one in found.unrecorded:
        yield f"not recorded here: what led to step {one.step:,} of run {one.run}, with which it began"
    yield "proven: no held-out task was learned" if found.is_proven else "not proven"


def _share(tasks: Sequence[LearnedTask], num_tokens: int) -> str:
    num = sum(one.num_tokens for one in tasks)
    return f" ({num / num_tokens:.2%} of all trained tokens)" if tasks and num_tokens else ""


def _write_learned(one: LearnedTask) -> str:
    shown = ", ".join(f"{update.run}/{update.step}" for update in one.updates[:_MAX_UPDATES])
    more = f" and {len(one.updates) - _MAX_UPDATES} more" if len(one.updates) > _MAX_UPDATES else ""
    counts = f"{one.num_rollouts:,} rollouts, {one.num_tokens:,} tokens"
    return f"  {one.task_id} {one.match}: {counts}, updates {shown}{more}"
