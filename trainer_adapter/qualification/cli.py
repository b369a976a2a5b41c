"""Command ``harnesses check``."""

from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from agent_layer.errors import AgentFailedError
from agent_layer.settings import Settings
from envs.commands import BoxOption, CommandFlags
from envs.harnesses import (
    ALLOWED_LOSSES,
    PartFigures,
    Qualification,
    find_harness,
    find_qualification,
    save_qualification,
)
from trainer_adapter.qualification.check import check_harness
from trainer_adapter.qualification.drift import find_drift


def check(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="See 'agent-layer harnesses'.")],
    *,
    part: Annotated[str | None, typer.Option(help="Only this part; nothing is stored then.")] = None,
    box: BoxOption = None,
) -> None:
    """Drive an installed agent through a fixed script, and count what it sampled and what of it is trained.

    The agent runs unmodified in a sandbox, behind a gateway and a scripted engine of their own: tools, two calls at
    once, sub-agents, forty turns, a refused call, a cut stream, resuming. Each sampled token is trained or has a cause.
    The exit status is 1 if the policy lost a token for another cause than 'aux' or 'cut_stream'. The result is compared
    with the last.

        agent-layer harnesses check mini-swe-agent
    """
    settings: Settings = context.obj
    harness = find_harness(name)
    before = find_qualification(settings, name)
    result = check_harness(
        settings, harness, partial(typer.echo, err=True), part, CommandFlags(box=box).read(is_harness=True)
    )
    _print(result)
    if part is None:
        if before is not None:
            for line in find_drift(before, result):
                typer.echo(f"drift: {line}")
        typer.echo(f"stored in {save_qualification(settings, result)}")
    if not result.is_clean:
        faults = [f"{one.name}: {why}" for one in result.parts for why in _list_faults(one)]
        raise AgentFailedError(f"harness {name!r}: not qualified; {'; '.join(faults)}")


def _list_faults(part: PartFigures) -> list[str]:
    lost = {cause: number for cause, number in part.lost.items() if cause not in ALLOWED_LOSSES}
    return [
        *([part.fault] if part.fault else []),
        *(f"lost {number} tokens to {cause}" for cause, number in lost.items()),
        *(f"found {finding!r}, which its declaration does not list" for finding in part.findings),
    ]


def _print(result: Qualification) -> None:
    table = Table(box=None, pad_edge=False)
    columns = ("part", "calls", "steps", "sampled", "trained", "lost", "rows", "longest", "row/sampled", "forks")
    for column in columns:
        table.add_column(column, no_wrap=True, justify="left" if column in ("part", "lost", "forks") else "right")
    for one in result.parts:
        table.add_row(
            one.name,
            *map(str, (one.num_calls, one.num_steps, one.sampled, one.trained)),
            _join(one.lost),
            *map(str, (one.num_rows, one.longest_row)),
            f"{one.row_tokens / one.sampled:.1f}" if one.sampled else "-",
            _join(one.forks),
        )
    Console().print(table)
    where = "without a sandbox" if result.box == "none" else f"in a sandbox ({result.box})"
    typer.echo(f"{result.harness} {result.version}, {where}: first request {result.first_request} words")
    for one in result.rendered:
        typer.echo(
            f"{one.template}: first request {one.first_request} tokens, longest row {one.longest_row},"
            f" {one.num_rows} rows, {one.row_tokens / max(1, one.sampled):.1f} row tokens per sampled token"
        )


def _join(counts: dict[str, int]) -> str:
    return ", ".join(f"{cause} {number}" for cause, number in counts.items()) or "0"
