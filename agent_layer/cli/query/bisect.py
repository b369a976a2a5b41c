"""Command ``bisect``: the first token that differs between engine and trainer, and why."""

from typing import Annotated, Literal

import typer

from agent_layer.cli.ui.output import defuse, write_lines
from agent_layer.engines import read_engine_address
from agent_layer.errors import BadInputError
from agent_layer.gaps import BisectOptions, Finding, bisect_gap
from agent_layer.settings import Settings
from agent_layer.store import open_store
from agent_layer.times import parse_range

_MAX_VERSIONS = 64


def bisect(
    context: typer.Context,
    subject: Annotated[str, typer.Argument(help="Id of a trajectory, or RUN:STEP for an update.")],
    *,
    engine: Annotated[
        list[str] | None, typer.Option(help="Ask this engine; may be repeated. Without it, the engines of the run.")
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(help="LO..HI: load these versions one by one into the one --engine, which must serve no run."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest difference of log-probabilities taken as equal; 0.02 for float32.")
    ] = BisectOptions().tolerance,
    format_: Annotated[Literal["text", "json"], typer.Option("--format")] = "text",
) -> None:
    """Find the first token that engine and trainer computed differently, and the likely cause.

    Engines compute the recorded token ids again, without their cache. Named are stale weights, another adapter, a
    prefix cache kept over a switch, another template, and a trainer with other weights. Exit 1 if a token differs.

    agent-layer bisect 01J9ZK-0
    agent-layer bisect my-run:12 --engine http://127.0.0.1:8100 --versions 9..12
    """
    settings: Settings = context.obj
    options = BisectOptions(
        engines=[read_engine_address(one) for one in engine or []],
        versions=_list_versions(versions) if versions else [],
        tolerance=tolerance,
    )
    found = bisect_gap(settings, open_store(settings), subject, options)
    if format_ == "json":
        write_lines([found])
    else:
        typer.echo(_describe(found))
    if found.cause != "none":
        raise typer.Exit(1)


def _list_versions(text: str) -> list[int]:
    low, high = parse_range(text, "versions")
    if low is None or high is None or low < 0 or high - low >= _MAX_VERSIONS or not (low + high).is_integer():
        raise BadInputError(
            f"versions {text!r}: expected LO..HI with at most {_MAX_VERSIONS} versions; write both ends"
        )
    return list(range(int(low), int(high) + 1))


def _describe(found: Finding) -> str:
    lines = [f"trajectory {found.trajectory_id}", f"cause      {found.cause}: {found.sentence}"]
    if found.token is not None:
        text = "" if found.text is None else f" {defuse(found.text)!r}"
        lines.insert(1, f"first      step {found.step}, sampled token {found.token}: id {found.token_id}{text}")
        rows = {"sampled": found.sampled, "trainer": found.trained, **found.replayed}
        lines += [f"  {value:10.4f}  {name}" for name, value in rows.items() if value is not None]
    return "\n".join(lines)
