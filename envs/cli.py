"""Commands of this package: ``work``, which runs workers, and ``rescore``."""

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
from envs.agents import Target
from envs.commands import CommandFlags, CommandOptions, CommandTarget, as_arguments, choose_box, take_command_flags
from envs.harnesses import PREFIX, find_harness, make_harness_target
from envs.placement import Where, Workforce, run_workers
from envs.scorers import AGENT
from envs.worker import WorkOptions, serve_worker

_COMMAND = "envs.cli"
"""Key under which the parser stores the arguments behind ``--``."""
_ARGUMENTS = "envs.arguments"
"""Key under which it stores all arguments, for workers in other processes."""


app = typer.Typer(add_completion=False)


class _WorkCommand(TyperCommand):
    """Separates the arguments behind ``--``, which are the agent's own command line."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # typer hides the type of its context
        """Remove the agent's command, then parse the rest."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        ctx.meta[_ARGUMENTS] = [
            *args[:at],
            "--on=here",
            "--workers=1",
            *args[at:],
        ]  # the last value of an option counts
        return super().parse_args(ctx, args[:at])


@app.command(cls=_WorkCommand)
@take_command_flags
def work(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    target: Annotated[
        str | None, typer.Argument(help="module:attribute, found from here, or a registered name.")
    ] = None,
    *,
    slots: Annotated[int, typer.Option(min=1, help="Agents that run at the same time.")] = 16,
    isolate: Annotated[bool, typer.Option("--isolate", help="Run each attempt in a process of its own.")] = False,
    score_slots: Annotated[int, typer.Option(min=1, help="Scorers that run at the same time, beside the agents.")] = 16,
    needs: Annotated[str, typer.Option(help="Needs of tasks that this worker meets, separated by commas.")] = "",
    scorer: Annotated[str, typer.Option(help="For tasks that name none: agent, module:function or a name.")] = AGENT,
    run: Annotated[str, typer.Option(help="Only tasks of this run.")] = "",
    drain: Annotated[
        float | None, typer.Option(min=0, help="Seconds that rollouts may go on while the worker drains.")
    ] = None,
    on: Annotated[
        Where | None, typer.Option(help="Where workers run; SIGHUP replaces those that are not here.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers; more than one run as processes.")] = 1,
    resources: Annotated[str, typer.Option(help='Ray resources of each worker, such as {"num_cpus": 2}.')] = "{}",
    flags: CommandFlags,
) -> None:
    """Run agents on queued tasks: work TARGET, work --harness NAME, or work -- COMMAND ARGUMENTS... .

    TARGET is async def agent(task, rollout), a compiled graph, or an Environment. COMMAND reads its task from
    AGENT_LAYER_TASK, and its last line of output is its result. Ctrl-C and SIGTERM drain a worker: it claims nothing
    more, and rollouts may go on for the seconds of --drain; a second Ctrl-C returns them to the queue at once.

    Each attempt of a COMMAND or --harness has an empty working directory, HOME and TMPDIR of its own, which end with
    it. Words of a COMMAND that name files here still find them; AGENT_LAYER_START_DIR is this directory. A --harness
    runs in a sandbox unless --box none says otherwise.

        agent-layer work my_agent:agent --slots 8
        agent-layer work --harness mini-swe-agent --slots 4
        agent-layer work --slots 4 -- python agent.py
        agent-layer work --workdir .@HEAD --diff changes.patch -- claude -p "Mend the tests"
        agent-layer work --box session --mount /opt/node -- node /opt/node/agent.mjs
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
    target = _name_harness(target, flags.harness)
    chosen = flags.read(is_harness=target is not None and target.startswith(PREFIX))
    agent, run_agent = _choose_agent(settings, target, context.meta[_COMMAND], chosen)
    if isinstance(run_agent, CommandTarget):
        chosen = run_agent.options
    work_options = WorkOptions(
        agent=agent,
        target=run_agent,
        is_isolated=isolate,
        slots=slots,
        score_slots=score_slots,
        needs=frozenset(check_name(need.strip(), "need") for need in needs.split(",") if need.strip()),
        scorer=scorer,
        run=run,
        sandbox=chosen.box,
        artifacts=chosen.artifacts,
    )
    asyncio.run(serve_worker(settings, work_options))


def _name_harness(target: str | None, harness: str | None) -> str | None:  # kept: the rule of two names
    """Return the target, or the name under which a harness is one.

    Raises: BadInputError: there are both.
    """
    if harness is None:
        return target
    if target is not None:
        raise BadInputError("work: needs either TARGET or --harness, not both; see 'agent-layer work -h'")
    return f"{PREFIX}{harness}"


def _choose_agent(
    settings: Settings, target: str | None, command: list[str], chosen: CommandOptions
) -> tuple[str, Target | None]:
    if (target is None) == (not command):
        raise BadInputError(
            "work: needs either TARGET, --harness or '-- COMMAND', not two or none; see 'agent-layer work -h'"
        )
    if target is not None and target.startswith(PREFIX):
        return target, make_harness_target(settings, find_harness(target.removeprefix(PREFIX)), chosen)
    if target is not None and chosen != CommandOptions():
        raise BadInputError(
            f"work: {as_arguments(chosen)[0]} is for '-- COMMAND'; the target {target!r} declares 'sandbox' and"
            " 'artifacts' itself"
        )
    if target is not None:
        return target, None
    if chosen.box is None and shutil.which(command[0]) is None:
        raise BadInputError(f"work: there is no program {command[0]!r} on PATH; check its name")
    return Path(command[0]).name, CommandTarget(command, choose_box(chosen))
