"""The end of the demo: scripted agents repair code in a sandbox, and ``agent-layer eval`` measures them."""

import asyncio
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from agent_layer.errors import AgentFailedError
from agent_layer.local import run_stack
from agent_layer.schema.sandbox import ISOLATIONS
from agent_layer.settings import Settings
from envs.evaluation import EvalRequest, RoundResult, evaluate
from envs.sandbox import Support, list_kind_names, make_kind

_AGENTS = {"reference": 1.0, "independent": 1.0, "near_miss": 0.0}
"""Scripted agents, and the share of rollouts that must pass."""
_MODULE = "envs.tasksets.repair"
_NUM_TASKS, _LEVEL, _SLOTS = 3, 1, 4


def evaluate_repair(settings: Settings, console: Console) -> None:
    """Evaluate scripted agents on code repair, and print what they reached.

    Where no kind of sandbox that isolates works, print why instead.

    Raises: AgentFailedError: an agent reached another share than it must.
    """
    supports = asyncio.run(_probe_kinds())
    if not any(support.works for support in supports.values()):
        console.print(
            "code repair is not evaluated, because no kind of sandbox that isolates works here:", style="bold"
        )
        for name, support in supports.items():
            console.print(f"  {name}: {support.reason}", soft_wrap=True, highlight=False)
        return
    console.print("\ncode repair by scripted agents in a sandbox:", style="bold")
    results: dict[str, RoundResult] = {}
    with ExitStack() as running:
        if not settings.gateway_url:
            settings = running.enter_context(run_stack(settings, None)).settings
        for agent in _AGENTS:
            request = EvalRequest(
                tasks="repair", agent=f"{_MODULE}:{agent}", n=1, level=_LEVEL, limit=_NUM_TASKS, slots=_SLOTS
            )
            results[agent] = evaluate(settings, request)
            if (stopped := results[agent].stopped) is not None and stopped.by_user:
                console.print("stopped; the same command evaluates them again")
                return
    console.print(_draw(results))
    for agent, result in results.items():
        expected, figures = _AGENTS[agent], result.figures
        if not figures.is_complete or figures.pass_at_1 is None or figures.pass_at_1.value != expected:
            why = f"; the last error: {figures.last_error}" if figures.last_error else ""
            raise AgentFailedError(
                f"code repair by {agent!r}: expected pass@1 {expected:g} of {figures.num_asked} rollouts, found"
                f" {'none' if figures.pass_at_1 is None else format(figures.pass_at_1.value, 'g')} of"
                f" {figures.num_rewards}{why}; see 'agent-layer query --run {result.round.run}'"
            )


async def _probe_kinds() -> dict[str, Support]:
    """Return whether the kinds that isolate work here, by name."""
    found: dict[str, Support] = {}
    for name in list_kind_names():
        kind = make_kind(name)
        try:
            if ISOLATIONS.index(kind.isolation) >= ISOLATIONS.index("namespace"):
                found[name] = await kind.probe()
        finally:
            await kind.close()
    return found


def _draw(results: dict[str, RoundResult]) -> Table:
    table = Table("agent", "pass@1", "rollouts", "seconds", "round", box=None, pad_edge=False)
    for agent, result in results.items():
        figures = result.figures
        table.add_row(
            agent,
            "-" if figures.pass_at_1 is None else f"{figures.pass_at_1.value:g}",
            f"{figures.num_rewards} of {figures.num_asked}",
            "-" if figures.seconds_p50 is None else f"{figures.seconds_p50:.1f}",
            result.round.name,
        )
    return table
