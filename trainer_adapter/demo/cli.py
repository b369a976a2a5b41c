"""The command ``agent-layer demo``."""

from typing import Annotated

import typer

STEPS = 70


def demo(
    context: typer.Context,
    steps: Annotated[int, typer.Option(min=1, help="Updates of the whole run, earlier starts included.")] = STEPS,
    seed: Annotated[int, typer.Option(help="Of the untrained weights; each seed is a run of its own.")] = 0,
    *,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin a new run; what is stored stays.")] = False,
    no_view: Annotated[bool, typer.Option("--no-view", help="Open no page ('agent-layer view').")] = False,
) -> None:
    """Train a LangGraph agent on this machine: vLLM, gateway, worker, veRL trainer, Redis and objects.

    The agent learns to find a hidden number from 1 to 6 in four guesses from 'higher' and 'lower'. The page at the
    printed address shows it. Ctrl-C stops everything and loses nothing; the same command goes on from weights,
    optimizer and cursor. At the end, scripted agents repair code in a sandbox and are evaluated.
    """
    from trainer_adapter.demo.demo import run_demo  # noqa: PLC0415  # needs the extras that a plain install lacks

    run_demo(context.obj, steps, seed, fresh=fresh, shows_page=not no_view)
