"""Command that asks a capture endpoint and compares its record with its engine's: ``conformance``."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from agent_layer.cli.ui.output import open_console, write_lines
from agent_layer.cli.ui.tables import Column, TableView, draw
from agent_layer.conformance import (
    CHECKS,
    CaptureAdapter,
    CheckResult,
    KitEngine,
    list_rows,
    load_adapter,
    open_own_gateway,
    run_checks,
    run_own_gateway,
    serve_kit_engine,
    wait_for,
)
from agent_layer.errors import BadInputError
from agent_layer.infra import format_count
from agent_layer.settings import Settings

_OURS = "agent-layer"
_DIALECTS = ("chat", "messages", "responses", "google")


def conformance(  # noqa: PLR0917  # options of a command are its arguments
    context: typer.Context,
    url: Annotated[
        str | None, typer.Argument(help="Of the endpoint, up to /v1. Without it, a gateway of ours is started.")
    ] = None,
    dialect: Annotated[
        list[str] | None, typer.Option(help="Only this one: chat, messages, responses or google.")
    ] = None,
    check: Annotated[list[str] | None, typer.Option(help="Only this one, as --list names it.")] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Not this one, because the endpoint does not promise it.")
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(
            help="How records are read: 'agent-layer' (the store of the settings), module:function, or a file of JSON"
            " lines. Without it, only what a client sees is judged."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Sent with each request; AGENT_LAYER_API_KEY by default.")] = None,
    model: Annotated[str, typer.Option(help="Name of the model that requests ask for.")] = "policy",
    engine_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the kit's engine on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the endpoint.")] = 60.0,
    settle: Annotated[float, typer.Option(min=0, help="Seconds between the last answer and the records.")] = 0.0,
    show_list: Annotated[bool, typer.Option("--list", help="Print the checks and what each promises.")] = False,
    format_: Annotated[Literal["table", "jsonl"], typer.Option("--format")] = "table",
) -> None:
    """Ask a capture endpoint, ours or another's, and compare what it recorded with what its engine sampled.

    The kit starts an engine (OpenAI-compatible, like vLLM, without a model) and prints its address. Let the endpoint
    use it, then every check asks through the endpoint: all dialects, whole and streamed, tools, retries, clients that
    go away, odd answers. Each check passes, fails, or says what the endpoint does not offer ("not claimed").
    Exit 1 if one fails.

    agent-layer conformance
    agent-layer conformance --list
    agent-layer conformance http://127.0.0.1:4000/v1 --engine-port 8000 --key sk-1 --dialect chat
    agent-layer conformance http://127.0.0.1:4000/v1 --engine-port 8000 --records my_adapter:read
    """
    if show_list:
        return _list_checks(format_)
    _check_names("--dialect", dialect, _DIALECTS)
    for option, names in (("--check", check), ("--without", without)):
        _check_names(option, names, [one.name for one in CHECKS])
    with serve_kit_engine(model, engine_port) as engine:
        typer.echo(f"engine: {engine.engine.url}/v1", err=True)
        with _open_endpoint(context.obj, engine, url, key, records, wait) as adapter:
            rows = list_rows(dialect or (), check or ())
            asking = run_checks(engine, adapter, rows, model=model, without=without or (), settle_seconds=settle)
            results = asyncio.run(asking)
    if format_ == "jsonl":
        write_lines(results)
    else:
        console = open_console()
        console.print(draw(_tabulate(results), console.width))
    if any(one.result == "fail" for one in results):
        raise typer.Exit(1)
    return None


@contextmanager
def _open_endpoint(
    settings: Settings, engine: KitEngine, url: str | None, key: str | None, records: str | None, wait: float
) -> Generator[CaptureAdapter]:
    if url is None:
        if records not in (None, _OURS):
            raise BadInputError("conformance: expected URL beside --records, found none; name the endpoint")
        with run_own_gateway(engine) as adapter:
            yield adapter
        return
    wait_for(url, wait)
    yield (
        open_own_gateway(settings, url, key)
        if records == _OURS
        else load_adapter(records, url, key or settings.api_key or "none")
    )


def _check_names(option: str, names: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in names or ():
        if name not in known:
            raise BadInputError(f"{option} {name}: expected one of {', '.join(known)}; correct it")


def _list_checks(format_: Literal["table", "jsonl"]) -> None:
    rows = [{"name": one.name, "question": one.question, "promise": one.promise} for one in CHECKS]
    if format_ == "jsonl":
        return write_lines(rows)
    for one in CHECKS:
        typer.echo(f"{one.name}\n    {one.question}\n    {one.promise}")
    return None


def _tabulate(results: Sequence[CheckResult]) -> TableView:
    columns = [Column("check", 0), *(Column(name, 0, is_state=True) for name in _DIALECTS), Column("not claimed", 0)]
    cells: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(one.check for one in results):
        mine = [one for one in results if one.check == name]
        unclaimed = sorted(
            {what for one in mine for what in one.not_claimed} - {"dialect", "whole", "streamed", "check"}
        )
        cells[name] = {"check": name, **({"not claimed": ", ".join(unclaimed)} if unclaimed else {})}
        for dialect in _DIALECTS:
            if of_it := [one for one in mine if one.dialect == dialect]:
                cells[name][dialect] = _summarise(of_it)
    passed, failed, absent = (sum(one.result == word for one in results) for word in ("pass", "fail", "not claimed"))
    ran = format_count(len(results), "check")
    return TableView(
        summary=[f"{ran}: {passed} passed, {failed} failed, {absent} not claimed"],
        columns=columns,
        cells=list(cells.values()),
        rows=[],
        key=["check"],
        notes=[
            f"{one.check}, {one.dialect} {one.style}: {one.subject}: expected {one.expected}; got {one.got}"
            for one in results
            if one.result == "fail"
        ],
    )


def _summarise(results: Sequence[CheckResult]) -> str:
    """Return a cell: what all styles of a check and a dialect have in common, or the styles that fail."""
    styles: dict[str, list[str]] = {}
    for one in results:
        styles.setdefault("failed" if one.result == "fail" else one.result, []).append(one.style)
    if len(styles) == 1:
        return next(iter(styles))
    return ", ".join(f"{word} {style}" for word in sorted(styles) for style in styles[word])
