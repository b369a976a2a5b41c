"""Command ``eval``: measures an agent and a model on tasks, and compares rounds."""

import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.local import AllowNetwork, ImageMap, ReasoningParser, SharedVerifier, ToolParser, read_task_options
from agent_layer.settings import Settings
from agent_layer.view import link_to
from envs.commands import CommandFlags, CommandOptions, as_arguments, take_command_flags
from envs.costs import Price
from envs.evaluation.evaluator import EvalRequest, RoundResult, compare_with, evaluate, list_rounds, show_round
from envs.evaluation.figures.comparison import Comparison
from envs.evaluation.report import describe_round, print_comparison, print_round, print_rounds, write_lines, write_round
from envs.harnesses import PREFIX, check_harness

_COMMAND = "envs.evaluation.command"
"""Key under which the parser stores the arguments behind ``--``."""
_EXIT_STOPPED = 130
_MAX_WORDS = 2

Format = Literal["table", "jsonl"]

app = typer.Typer(add_completion=False)


class _EvalCommand(TyperCommand):
    """Separates the arguments behind ``--``, which are the agent's own command line."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # typer hides the type of its context
        """Remove the agent's command, then parse the rest."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@app.command("eval", cls=_EvalCommand)
@take_command_flags
def evaluate_command(  # noqa: PLR0913  # options of a command are its arguments
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="AGENT TASKS",
            help="AGENT as 'work' takes it; TASKS: a task set, TASKS.jsonl, a folder of such files or of Harbor tasks.",
        ),
    ] = None,
    *,
    model: Annotated[
        str | None,
        typer.Option(help="URL of an OpenAI-compatible server, directory of weights, or FILE.py:function of a script."),
    ] = None,
    model_name: Annotated[str | None, typer.Option(help="Name of the model, where a server has several.")] = None,
    tool_parser: ToolParser = None,
    reasoning_parser: ReasoningParser = None,
    n: Annotated[int | None, typer.Option("-n", min=1, max=1000, help="Rollouts of each task; 8 by default.")] = None,
    level: Annotated[int | None, typer.Option(min=0, help="Difficulty of a task set; 0 by default.")] = None,
    split: Annotated[
        Literal["eval", "train"] | None, typer.Option(help="Of a task set. Rollouts are of split eval in any case.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of a task set, and of the intervals; 0 by default.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most tasks; else all of a file, or 50 of a task set.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Rollouts that run at the same time.")] = 16,
    temperature: Annotated[float | None, typer.Option(min=0, help="In place of what the agent asks for.")] = None,
    scorer: Annotated[
        str | None, typer.Option(help="For tasks that name none: agent, module:function or a name.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="A rollout passes with this reward; 1 by default.")] = None,
    name: Annotated[str | None, typer.Option("--round", help="Name of the round; else one with the time.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with --round: run only what it lacks.")] = False,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="With --resume: take a mended agent, scorer or task, redo what it touches."),
    ] = False,
    against: Annotated[str | None, typer.Option(help="Earlier round to compare with, task by task.")] = None,
    fail_below: Annotated[float | None, typer.Option(min=0, max=1, help="Exit 1 if pass@1 is below this.")] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit 1 if pass@1 fell by more than this against the earlier round."),
    ] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop the round at this cost, in US dollars.")] = None,
    price_in: Annotated[float | None, typer.Option(min=0, help="Dollars per million prompt tokens.")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="Dollars per million sampled tokens.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List stored rounds.")] = False,
    image_map: ImageMap = None,
    allow_network: AllowNetwork = False,
    shared_verifier: SharedVerifier = False,
    flags: CommandFlags,
    format_: Annotated[Format, typer.Option("--format", help="jsonl: the round, then each task.")] = "table",
) -> None:
    """Evaluate an agent and a model: eval [AGENT] TASKS, or eval TASKS -- COMMAND ARGUMENTS... .

    Each task is run n times behind the gateway, on this machine or a configured stack. Prints pass@1 and pass@k with
    95 % confidence intervals, failures by cause, tokens, cost and time, and stores them as a round. Without AGENT, the
    agent of the task set plays it. The key of a server is AGENT_LAYER_POLICY_KEY, else OPENAI_API_KEY.

    A rollout without a reward is never counted as 0: it makes the round incomplete, and the exit status 1. --resume
    runs only what is missing, and refuses another agent, model or task; with --changed it names what has changed and
    redoes what that touches. Ctrl-C lets rollouts end first.

    With --against, the exit status is 1 on a regression: pass@1 fell by more than --max-drop; without that option, the
    95 % interval of the difference is below 0. --round NAME alone shows a stored round, also with --against.

        agent-layer eval my_agent:agent tasks.jsonl --model https://api.openai.com/v1 --model-name gpt-4o-mini -n 4
        agent-layer eval tasks.jsonl --model ./Qwen2.5-0.5B --round small -- python agent.py
        agent-layer eval tasks.jsonl --harness codex --model ./Qwen2.5-0.5B
        agent-layer eval tasks.jsonl --model URL --workdir repo@HEAD --diff changes.patch -- claude -p "Mend the tests"
        agent-layer eval my_agent:agent ./harbor-tasks --image-map ubuntu:24.04=/roots/ubuntu --model URL
        agent-layer eval --round small --resume
        agent-layer eval my_agent:agent --round small --resume --changed
        agent-layer eval --round large --against small --max-drop 0.02
    """
    settings: Settings = context.obj
    command: list[str] = context.meta[_COMMAND]
    if list_all:
        rounds = list_rounds(settings)
        if format_ == "jsonl":
            return write_lines(describe_round(one, one.figures) for one in rounds)
        return print_rounds(rounds)
    sys.path.insert(0, str(Path.cwd()))
    agent, tasks = _split_words(words or [], command, flags.harness)
    chosen = flags.read(is_harness=agent is not None and agent.startswith(PREFIX))
    _check_options(agent, command, chosen)
    check_harness(settings, agent, chosen)  # before an engine starts, which takes a minute
    request = EvalRequest(
        agent=agent,
        tasks=tasks,
        command=command,
        command_options=as_arguments(chosen),
        model=model,
        model_name=model_name,
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        n=n,
        level=level,
        split=split,
        seed=seed,
        limit=limit,
        slots=slots,
        sampling=None if temperature is None else {"temperature": temperature},
        scorer=scorer,
        threshold=threshold,
        name=name,
        is_resumed=resume,
        redoes_changed=changed,
        max_cost=max_cost,
        price=_read_price(price_in, price_out),
    )
    if changed and not resume:
        raise BadInputError("eval: expected --resume beside --changed, found none; add it, with --round NAME")
    if max_drop is not None and against is None:
        raise BadInputError("eval: expected --against ROUND beside --max-drop, found none; name the earlier round")
    if tasks is None and name is not None and not resume:
        result = show_round(settings, name)
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        allowed = {"allow_network": allow_network, "shared_verifier": shared_verifier}
        result = evaluate(read_task_options(settings, image_map, **allowed), request)
    comparison = None if against is None else compare_with(settings, result, against)
    _print_result(settings, result, comparison, against or "", format_)
    return _end(result, comparison, against, fail_below=fail_below, max_drop=max_drop)


def _check_options(  # kept: with what to do
    agent: str | None, command: list[str], chosen: CommandOptions
) -> None:
    """Raise for options of a command where there is none, or no such program."""
    is_harness = agent is not None and agent.startswith(PREFIX)
    if not command and not is_harness and chosen != CommandOptions():
        raise BadInputError(
            f"eval: {as_arguments(chosen)[0]} is for --harness and '-- COMMAND', found neither; a resumed round keeps"
            " its own"
        )
    if command and chosen.box is None and shutil.which(command[0]) is None:
        raise BadInputError(f"eval: there is no program {command[0]!r} on PATH; check its name")


def _split_words(words: list[str], command: list[str], harness: str | None) -> tuple[str | None, str | None]:
    """Return agent and tasks.

    Raises: BadInputError: there are too many.
    """
    if command and harness is not None:
        raise BadInputError("eval: expected --harness or '-- COMMAND', found both; name one agent")
    most = 1 if command or harness else _MAX_WORDS
    if len(words) > most:
        other = "beside --harness" if harness else "before '-- COMMAND'"
        expected = f"tasks alone {other}" if command or harness else "an agent and tasks"
        raise BadInputError(f"eval: expected {expected}, found {' '.join(words)!r}; see 'agent-layer eval -h'")
    agent = f"{PREFIX}{harness}" if harness else words[0] if len(words) == _MAX_WORDS else None
    return agent, (words[-1] if words else None)


def _read_price(price_in: float | None, price_out: float | None) -> Price | None:
    if price_in is None and price_out is None:
        return None
    if price_in is None or price_out is None:
        raise BadInputError("eval: expected --price-in and --price-out together, found one; give both, 0 for none")
    return Price(prompt=price_in, response=price_out)


def _print_result(
    settings: Settings, result: RoundResult, comparison: Comparison | None, earlier: str, format_: Format
) -> None:
    if format_ == "jsonl":
        return write_round(result.round, result.figures, result.results, comparison)
    print_round(result.round, result.figures)
    if comparison is not None:
        print_comparison(comparison, name=result.round.name, earlier=earlier)
    if link := link_to(settings, "run", result.round.run):
        typer.echo(f"view: {link}", err=True)
    return None


def _end(
    result: RoundResult,
    comparison: Comparison | None,
    against: str | None,
    *,
    fail_below: float | None,
    max_drop: float | None,
) -> None:
    """End with the status that the result asks for.

    Raises:
        Exit: a user stopped it.
        AgentFailedError: the round is incomplete or worse than was asked for.
    """
    one, figures, stopped = result.round, result.figures, result.stopped
    again = f"'agent-layer eval --round {one.name} --resume'"
    if stopped is not None and stopped.by_user:
        typer.echo(f"agent-layer: round {one.name!r} stopped: {stopped.why}; {again} goes on", err=True)
        raise typer.Exit(_EXIT_STOPPED)
    if stopped is not None:
        raise AgentFailedError(f"round {one.name!r}: stopped, {stopped.why}; {again} goes on")
    if not figures.is_complete:
        last = f"; the last error: {figures.last_error}" if figures.last_error else ""
        raise AgentFailedError(
            f"round {one.name!r}: incomplete, {figures.num_asked - figures.num_rewards} of {figures.num_asked} rollouts"
            f" have no reward{last}; 'agent-layer query --run {one.run}' shows all, {again} tries again"
        )
    pass_at_1 = figures.pass_at_1
    if fail_below is not None and (pass_at_1 is None or pass_at_1.value < fail_below):
        found = "none" if pass_at_1 is None else f"{pass_at_1.value:.3f}"
        raise AgentFailedError(f"round {one.name!r}: expected pass@1 of at least {fail_below:g}, found {found}")
    if comparison is not None and comparison.is_regression(max_drop):
        fell = comparison.difference
        allowed = "its 95 % interval is below 0" if max_drop is None else f"more than --max-drop {max_drop:g}"
        raise AgentFailedError(
            f"round {one.name!r}: pass@1 fell by {-fell.value:.3f} against {against!r}, {allowed};"
            f" {comparison.num_losses} tasks got worse"
        )
