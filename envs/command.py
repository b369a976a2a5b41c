"""This file holds the commands of this package: ``work``, which runs a worker, and ``rescore`` from beside it."""

import asyncio
import logging
import shutil
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from agent_layer.errors import BadInputError
from agent_layer.schema.ids import check_name
from envs import rescore_command
from envs.command_target import CommandTarget
from envs.guard import Guard
from envs.scoring import AGENT, load_scorer
from envs.serving import WorkOptions, serve_worker
from envs.targets import Target, load_target
from envs.versions import environment_named

__all__ = ["register"]

_COMMAND = "envs.command"
"""Where the parser leaves what stands behind ``--``."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(cls=_WorkCommand)(work)
    rescore_command.register(app)


class _WorkCommand(TyperCommand):
    """Keeps what stands behind ``--`` apart: it is the agent's own command line."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # typer hides the type of its context
        """Take the agent's command away, then read the rest."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def work(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="module:attribute or a registered name.")] = None,
    *,
    slots: Annotated[int, typer.Option(min=1, help="Agents that run at the same time.")] = 16,
    needs: Annotated[str, typer.Option(help="What tasks may need of this worker, separated by commas.")] = "",
    scorer: Annotated[str, typer.Option(help="For tasks that name none: agent, module:function or a name.")] = AGENT,
    run: Annotated[str, typer.Option(help="Only tasks of this run.")] = "",
) -> None:
    """Run agents on queued tasks: work TARGET, or work -- COMMAND ARGUMENTS... ."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    sys.path.insert(0, str(Path.cwd()))
    load_scorer(scorer)
    with ExitStack() as ended_with_us:
        agent, run_agent = _choose_agent(target, context.meta[_COMMAND], ended_with_us)
        env, env_version = (None, None) if target is None else environment_named(target)
        options = WorkOptions(
            agent=agent,
            target=run_agent,
            env=env,
            env_version=env_version,
            slots=slots,
            needs=frozenset(check_name(need.strip(), "need") for need in needs.split(",") if need.strip()),
            scorer=scorer,
            run=run,
        )
        asyncio.run(serve_worker(context.obj, options))


def _choose_agent(target: str | None, command: list[str], ended_with_us: ExitStack) -> tuple[str, Target]:
    if (target is None) == (not command):
        raise BadInputError("work: expected TARGET or '-- COMMAND', found both or neither; see 'agent-layer work -h'")
    if target is not None:
        return target, load_target(target)
    if shutil.which(command[0]) is None:
        raise BadInputError(f"work: expected a program to run, found no {command[0]!r} on PATH; check its name")
    return Path(command[0]).name, CommandTarget(command, ended_with_us.enter_context(closing(Guard())))
