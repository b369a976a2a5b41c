"""Commands about the health of runs: the last step, what fires, the catalogue, rules for Prometheus, messages."""

import time
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table

from agent_layer.cli.ui.links import print_link, print_run_link
from agent_layer.cli.ui.output import draw_table, write_lines
from agent_layer.cli.ui.watch import Format, Run
from agent_layer.errors import AgentLayerError, BadInputError, NotFoundError
from agent_layer.health import (
    STEP_CHECKS,
    Check,
    HealthFinding,
    HealthReader,
    RunHealth,
    open_notifier,
    open_senders,
    progress_path,
    prometheus_rules,
    read_progress,
    set_live_limits,
    watch_runs,
)
from agent_layer.infra import open_redis
from agent_layer.settings import Settings


class _Fires(msgspec.Struct, frozen=True, kw_only=True):
    """One line of output."""

    run: str
    name: str
    level: Literal["warn", "stop"]
    value: float | None
    limit: float
    since_step: int | None
    since: float | None
    subject: str | None
    sentence: str
    advice: str


def health(
    context: typer.Context,
    *,
    run: Run = None,
    catalogue: Annotated[
        bool, typer.Option("--catalogue", help="List what is looked at, with the limits that hold by default.")
    ] = False,
    format_: Format = "table",
) -> None:
    """Show what was wrong with the last step of a training run, since when, and what to do.

    The limits are in the section 'health' of a run's configuration: 'forks: {warn: 0.1, stop: 0.5, steps: 3}', or
    'forks: off'.
    """
    if catalogue:
        return _list_checks(STEP_CHECKS, format_)
    settings: Settings = context.obj
    name = run or settings.run
    reports = read_progress(progress_path(settings, name))
    if not reports:
        raise NotFoundError(
            f"run {name}: expected reports of its steps in {progress_path(settings, name)}, found none; check the run"
            " and --dir, or wait for its first step"
        )
    last = reports[-1]
    if format_ == "jsonl":
        return write_lines(last.health)
    typer.echo(f"run {name}, step {last.step}: {'' if last.health else 'healthy'}".rstrip())
    for finding in last.health:
        typer.echo(f"{finding.level}: {finding}")
    return print_link(settings, "run", name)


def alarms(context: typer.Context) -> None:
    """Show what fires in any run; list all alarms; print rules for Prometheus; send messages."""
    if context.invoked_subcommand is None:
        now(context)


def now(context: typer.Context, *, run: Run = None, format_: Format = "table") -> None:
    """Show what fires now, the worst first. Runs without a trainer here show what Redis knows of them."""
    settings: Settings = context.obj
    with open_redis(settings) as redis:
        reader = HealthReader(settings, redis)
        found = reader.read([run] if run else reader.list_runs())
    if format_ == "jsonl":
        write_lines(_line(one.run, finding) for one in found for finding in one.findings)
        return
    for one in found:
        for finding in one.findings:
            typer.echo(f"run {one.run}: {finding.level}: {finding}")
    if not any(one.findings for one in found):
        typer.echo(f"nothing fires in {len(found)} runs")
    print_run_link(settings, run, "runs")


def list_alarms(context: typer.Context, *, format_: Format = "table") -> None:
    """List all alarms with their limits; 'now' is measured at any moment, without a trainer."""
    _list_checks(_checks(context), format_)


def _list_checks(checks: Sequence[Check], format_: Literal["table", "jsonl"]) -> None:
    if format_ == "jsonl":
        return write_lines({name: getattr(one, name) for name in Check.__struct_fields__} for one in checks)
    table = Table("name", "measures", "unit", "warn", "stop", "steps", box=None, pad_edge=False)
    for one in checks:
        limits = ("" if limit is None else f"{limit:g}" for limit in (one.warn, one.stop))
        table.add_row(one.name, one.measures, one.unit, *limits, str(one.steps or "now"))
    return draw_table(table)


def prometheus(context: typer.Context) -> None:
    """Print the alarms as a file of rules for Prometheus, over the gauges at /metrics of 'agent-layer view'."""
    typer.echo(prometheus_rules(_checks(context)), nl=False)


def _checks(context: typer.Context) -> list[Check]:
    """Return the catalogue with the limits of the settings."""
    settings: Settings = context.obj
    return [*STEP_CHECKS, *set_live_limits(settings.alarm_limits)]


def watch(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(min=0.1, help="Pause between two looks.")] = 15.0,
) -> None:
    """Send each alarm of any run once when it begins to fire and once when it is over, until Ctrl-C.

    Addresses are in AGENT_LAYER_ALARM_URLS, with spaces between them, as Apprise writes them. A trainer sends the
    alarms of its own steps; what needs an outside look (stall, starved, unserved, engine_behind, …) is sent from here.
    """
    settings: Settings = context.obj
    if not settings.alarm_addresses:
        raise BadInputError(
            "setting alarm_urls: expected an address such as slack://… or mailto://…, found none; set"
            " AGENT_LAYER_ALARM_URLS"
        )
    shown: dict[str, set[str]] = {}

    def show(one: RunHealth) -> None:
        found = {finding.name: finding for finding in one.findings}
        before = shown.get(one.run, set())
        for name in sorted(found.keys() - before):
            typer.echo(f"run {one.run}: {found[name].level}: {found[name]}")
        for name in sorted(before - found.keys()):
            typer.echo(f"run {one.run}: over: {name}")
        shown[one.run] = set(found)

    def wait() -> bool:
        time.sleep(seconds)
        return True

    with open_redis(settings) as redis, open_notifier(settings) as notifier:
        watch_runs(HealthReader(settings, redis), notifier, wait, show)


def test(context: typer.Context) -> None:
    """Send one message through every alarm address. Exit 1 if one does not take it."""
    settings: Settings = context.obj
    senders = open_senders(settings.alarm_addresses)
    if not senders:
        raise BadInputError("setting alarm_urls: expected addresses, found none; set AGENT_LAYER_ALARM_URLS")
    text = f"Alarms of namespace {settings.namespace} arrive here. Nothing is wrong."
    failed = [number for number, send in enumerate(senders, 1) if not send("TEST agent-layer", text, "info")]
    if failed:
        names = ", ".join(f"{number} ({settings.alarm_addresses[number - 1].partition('://')[0]})" for number in failed)
        raise AgentLayerError(
            f"alarm addresses: {len(failed)} of {len(senders)} did not take the message: {names}; look at the lines"
            " above, and check each address"
        )
    typer.echo(f"{len(senders)} of {len(senders)} addresses took the message")


def _line(run: str, finding: HealthFinding) -> _Fires:
    return msgspec.convert(msgspec.structs.asdict(finding) | {"run": run}, _Fires)
