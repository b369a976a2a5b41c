"""This file holds the commands of this package: ``work``, which runs a worker, and ``rescore`` from beside it."""

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from agent_layer.errors import BadInputError
from agent_layer.schema import check_name
from agent_layer.settings import Settings
from envs.agents import CommandTarget, Target
from envs.placement import Where, Workforce, run_workers
from envs.scorers import AGENT
from envs.worker import WorkOptions, serve_worker

_COMMAND = "envs.cli"
"""Where the parser leaves what stands behind ``--``."""
_ARGUMENTS = "envs.arguments"
"""Where it leaves all of the command's arguments, for workers in other processes."""


app = typer.Typer(add_completion=False)


class _WorkCommand(TyperCommand):
    """Keeps what stands behind ``--`` apart: it is the agent's own command line."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # typer hides the type of its context
        """Take the agent's command away, then read the rest."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        ctx.meta[_ARGUMENTS] = [*args[:at], "--on=here", "--workers=1", *args[at:]]  # of two values, the last counts
        return super().parse_args(ctx, args[:at])


@app.command(cls=_WorkCommand)
def work(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(help="module:attribute, found from here, or a registered name.")
    ] = None,
    *,
    slots: Annotated[int, typer.Option(min=1, help="Agents that run at the same time.")] = 16,
    isolate: Annotated[bool, typer.Option("--isolate", help="Run each attempt in a process of its own.")] = False,
    score_slots: Annotated[int, typer.Option(min=1, help="Judgements at the same time, beside the agents.")] = 16,
    needs: Annotated[str, typer.Option(help="What tasks may need of this worker, separated by commas.")] = "",
    scorer: Annotated[str, typer.Option(help="For tasks that name none: agent, module:function or a name.")] = AGENT,
    run: Annotated[str, typer.Option(help="Only tasks of this run.")] = "",
    drain: Annotated[
        float | None, typer.Option(min=0, help="Seconds that rollouts may go on when the worker is told to end.")
    ] = None,
    on: Annotated[
        Where | None, typer.Option(help="Where workers run; SIGHUP replaces those that are not here.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many; more than one: as processes.")] = 1,
    resources: Annotated[str, typer.Option(help='What Ray gives each worker, such as {"num_cpus": 2}.')] = "{}",
) -> None:
    """Run agents on queued tasks: work TARGET, or work -- COMMAND ARGUMENTS... .

    TARGET is async def agent(task, rollout), a compiled graph, or an Environment. COMMAND finds what it is asked in
    AGENT_LAYER_TASK, and its last line of output is its result. Ctrl-C and SIGTERM drain a worker: it takes nothing
    more, and what runs may go on for the seconds of --drain; a second Ctrl-C gives that back at once, to other workers.

        agent-layer work my_agent:agent --slots 8
        agent-layer work --slots 4 -- python agent.py
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    settings: Settings = context.obj
    if drain is not None:
        settings = settings.model_copy(update={"work_drain_seconds": drain})
    on = on or ("here" if workers == 1 else "processes")
    if on != "here":
        arguments = context.meta[_ARGUMENTS]
        run_workers(settings, Workforce(on=on, num_workers=workers, arguments=arguments, resources=resources))
        return
    agent, run_agent = _choose_agent(target, context.meta[_COMMAND])
    options = WorkOptions(
        agent=agent,
        target=run_agent,
        is_isolated=isolate,
        slots=slots,
        score_slots=score_slots,
        needs=frozenset(check_name(need.strip(), "need") for need in needs.split(",") if need.strip()),
        scorer=scorer,
        run=run,
    )
    asyncio.run(serve_worker(settings, options))


def _choose_agent(target: str | None, command: list[str]) -> tuple[str, Target | None]:
    if (target is None) == (not command):
        raise BadInputError("work: expected TARGET or '-- COMMAND', found both or neither; see 'agent-layer work -h'")
    if target is not None:
        return target, None
    if shutil.which(command[0]) is None:
        raise BadInputError(f"work: expected a program to run, found no {command[0]!r} on PATH; check its name")
    return Path(command[0]).name, CommandTarget(command)
