"""Command that runs everything on this machine except a trainer: ``up``."""

import signal
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agent_layer.engines import read_engine_address
from agent_layer.errors import BadInputError, EngineError
from agent_layer.local import (
    ReasoningParser,
    ToolParser,
    VllmServer,
    claim_operator_key,
    run_page,
    run_stack,
    shell_exports,
)
from agent_layer.recorder import ensure_shipper
from agent_layer.settings import Settings

_CHECK_SECONDS = 1.0


def up(  # noqa: PLR0917  # options of a command are its arguments
    context: typer.Context,
    model: Annotated[Path | None, typer.Option(help="Directory of a model; vLLM is started with it.")] = None,
    engine: Annotated[str | None, typer.Option(help="Address of an engine that runs already.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Of the gateway; 0 takes a free one.")] = 8790,
    lora_rank: Annotated[
        int | None,
        typer.Option(min=1, help="Let vLLM take LoRA adapters up to this rank ('lora: {publish: adapter}')."),
    ] = None,
    tool_parser: ToolParser = None,
    reasoning_parser: ReasoningParser = None,
    no_view: Annotated[bool, typer.Option("--no-view", help="Open no page ('agent-layer view').")] = False,
) -> None:
    """Run Redis, objects, an engine and the gateway on this machine.

    Prints the settings with which workers and trainers find them, and the address of the page that shows what they do.
    Ctrl-C stops everything.
    """
    source, say = _choose_engine(context.obj, model, engine), partial(typer.echo, err=True)
    if isinstance(source, VllmServer):
        source.lora_rank = lora_rank
        source.tool_parser, source.reasoning_parser = tool_parser or "auto", reasoning_parser or "auto"
        say(str(source.parsers))
    elif tool_parser or reasoning_parser:
        raise BadInputError(
            "up: expected a parser beside --model, found it beside an engine that runs already; start that engine so"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt), ExitStack() as running:
        try:
            with Console(stderr=True).status("starting") as status:
                stack = running.enter_context(run_stack(claim_operator_key(context.obj), source, port, status.update))
        except EngineError as error:
            if isinstance(source, str):
                raise BadInputError(str(error)) from error
            raise
        ensure_shipper(stack.settings)  # for logs of processes that were killed
        page = None if no_view else running.enter_context(run_page(stack.settings, say))
        for line in shell_exports(stack.settings):
            typer.echo(line)
        if page is not None:
            say(f"view: {page}")
        while True:
            stack.check()
            time.sleep(_CHECK_SECONDS)


def _choose_engine(settings: Settings, model: Path | None, engine: str | None) -> VllmServer | str:
    """Return the engine to start, or the address of one that runs."""
    if model and engine:
        raise BadInputError("up: expected --model or --engine, found both; choose one")
    if model:
        if not (model / "config.json").is_file():
            raise BadInputError(f"model {model}: expected a directory with config.json, found none; check the path")
        log = settings.dir.absolute() / "logs" / "vllm.log"
        return VllmServer(model=model.absolute(), log=log, start_seconds=settings.engine_seconds)
    if url := engine or next(iter(settings.engine_urls), None):
        return read_engine_address(url)
    raise BadInputError(
        "up: expected a model or an engine, found neither; give --model PATH to start vLLM with it, or --engine URL"
        " ('python -m agent_layer.local.scripted --port 8000' serves one that needs no model)"
    )
