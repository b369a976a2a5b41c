"""Results of rounds as tables, and as lines of JSON."""

import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from agent_layer.infra import format_count, format_number
from agent_layer.schema import JsonObject
from agent_layer.times import format_time
from envs.evaluation.figures.comparison import Comparison
from envs.evaluation.figures.estimates import Estimate
from envs.evaluation.figures.figures import Figures, TaskResult
from envs.evaluation.rounds import EvaluatedModel, Round

_PIPE_COLUMNS = 160
"""Width without a terminal."""
_NUM_WORSE = 20


def open_console() -> Console:
    """Open a console as wide as the terminal, and wide enough elsewhere."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, soft_wrap=True)


def print_round(one: Round, figures: Figures) -> None:
    """Print the figures of a round."""
    console = open_console()
    table = Table(title=f"round {one.name}", title_justify="left", show_header=False, box=None, pad_edge=False)
    for name, value in _write_lines(one, figures):
        table.add_row(name, value)
    console.print(table)
    if figures.slices:
        console.print(_table_of_slices(figures))
    for note in _write_notes(one, figures):
        console.print(note, highlight=False)


def print_comparison(comparison: Comparison, *, name: str, earlier: str) -> None:
    """Print how a round did beside an earlier one."""
    console = open_console()
    table = Table(title=f"{name} against {earlier}", title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_row("tasks compared", str(comparison.num_pairs))
    if comparison.num_only_here or comparison.num_only_there:
        table.add_row("not compared", f"{comparison.num_only_here} only here, {comparison.num_only_there} only there")
    wins = f"{comparison.num_wins} better, {comparison.num_losses} worse, {comparison.num_ties} equal"
    table.add_row("tasks", f"{wins} (sign test: p = {comparison.p_value:.3g})")
    table.add_row("pass@1", f"{comparison.before:.3f} → {comparison.after:.3f}")
    table.add_row("difference", _describe(comparison.difference, sign="+"))
    console.print(table)
    if comparison.worse:
        console.print("got worse:")
    for change in comparison.worse[:_NUM_WORSE]:
        console.print(f"  {change.id}  {change.before:.2f} → {change.after:.2f}", highlight=False)
    if len(comparison.worse) > _NUM_WORSE:
        console.print(f"  and {len(comparison.worse) - _NUM_WORSE} more; '--format jsonl' has all")


def print_rounds(rounds: Sequence[Round]) -> None:
    """Print one line for each round."""
    names = ("round", "state", "model", "agent", "tasks", "n", "pass@1", "mean reward", "cost", "started")
    table = Table(*names, box=None, pad_edge=False)
    for one in rounds:
        figures = one.figures
        table.add_row(
            one.name,
            one.state,
            describe_model(one.model),
            one.agent.target or " ".join(one.agent.command),
            f"{one.source.name} ({len(one.tasks)})",
            str(one.yardstick.n),
            _describe(figures.pass_at_1) if figures else "-",
            format_number(figures.mean_reward.value) if figures and figures.mean_reward else "-",
            f"{figures.cost:.4f} $" if figures and figures.cost else "-",
            format_time(one.started_at),
        )
    open_console().print(table)


def write_round(one: Round, figures: Figures, results: Iterable[TaskResult], comparison: Comparison | None) -> None:
    """Write a round as JSON: a line of kind round, one of kind task for each task, one of kind comparison."""
    lines: list[JsonObject] = [{"kind": "round", **describe_round(one, figures)}]
    threshold = one.yardstick.threshold
    for result in results:
        passed = result.num_passed(threshold)
        lines.append({"kind": "task", **msgspec.to_builtins(result), "num_passed": passed})
    if comparison is not None:
        lines.append({"kind": "comparison", **msgspec.to_builtins(comparison)})
    write_lines(lines)


def describe_round(one: Round, figures: Figures | None) -> JsonObject:
    """Return a round as a row of JSON, without its tasks."""
    fields: JsonObject = msgspec.to_builtins(one)
    for name in ("tasks", "results", "figures"):
        del fields[name]
    times = {name: None if at is None else format_time(at) for name, at in _list_times(one)}
    return {**fields, **times, "run": one.run, "state": one.state, "figures": msgspec.to_builtins(figures)}


def write_lines(rows: Iterable[JsonObject]) -> None:
    """Write each row as one line of JSON."""
    sys.stdout.buffer.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
    sys.stdout.flush()


def describe_model(model: EvaluatedModel) -> str:
    """Return a model as a person reads it."""
    version = "" if model.policy_version is None else f", version {model.policy_version}"
    match model.kind:
        case "none":
            return "none"
        case "endpoint":
            return f"{model.name} at {model.location}"
        case _:
            return f"{model.name or 'policy'}{version}"


def _list_times(one: Round) -> list[tuple[str, float | None]]:
    return [("started_at", one.started_at), ("ended_at", one.ended_at)]


def _write_lines(one: Round, figures: Figures) -> Iterable[tuple[str, str]]:
    yield "model", describe_model(one.model)
    yield "agent", one.agent.target or " ".join(one.agent.command)
    num_tasks = format_count(figures.num_tasks, "task")
    yield (
        "rollouts",
        f"{figures.num_rewards} of {figures.num_asked} ({num_tasks}, n = {one.yardstick.n})",
    )
    for one_k in figures.pass_at:
        of = "" if one_k.num_tasks == figures.num_tasks else f" (of {one_k.num_tasks} tasks)"
        yield f"pass@{one_k.k}", f"{_describe(one_k.estimate)}{of}"
    yield "mean reward", _describe(figures.mean_reward)
    if figures.causes:
        yield "failures", ", ".join(f"{cause} {num}" for cause, num in sorted(figures.causes.items()))
    if figures.num_attempts > figures.num_asked:
        yield "attempts", str(figures.num_attempts)
    yield "tokens", f"{figures.prompt_tokens:,} in, {figures.response_tokens:,} out"
    if figures.cost:
        yield "cost", f"{'at least ' if _is_cost_partial(one, figures) else ''}{figures.cost:.4f} $"
    if figures.seconds_p50 is not None and figures.seconds_p90 is not None and figures.seconds_max is not None:
        yield "seconds", f"p50 {figures.seconds_p50:.1f}, p90 {figures.seconds_p90:.1f}, max {figures.seconds_max:.1f}"


def _write_notes(one: Round, figures: Figures) -> Iterable[str]:
    if figures.num_without_call and one.model.kind != "none":
        yield (
            f"note: in {figures.num_without_call} rollouts the agent did not call the model; let it use OPENAI_BASE_URL"
            " (rollout.base_url), or set calls_optional in the tasks"
        )
    threshold = one.yardstick.threshold
    if figures.mean_reward and figures.mean_reward.value > 0 and figures.pass_at_1 and not figures.pass_at_1.value:
        yield f"note: there are rewards above 0, but none reaches {threshold:g}, so none passes; see --threshold"
    if unpriced := _unpriced(one, figures):
        yield f"note: no price is known for {', '.join(unpriced)}; --price-in and --price-out give the model's"
    if figures.num_uncounted and figures.cost:
        yield f"note: the server counted no tokens of {figures.num_uncounted} calls (streams without include_usage)"


def _unpriced(one: Round, figures: Figures) -> list[str]:
    """Return models without a price; an engine of our own needs none."""
    own = {one.model.name} if one.model.kind != "endpoint" else set[str | None]()
    return [model for model in figures.unpriced if model not in own]


def _is_cost_partial(one: Round, figures: Figures) -> bool:
    return bool(figures.num_uncounted or _unpriced(one, figures))


def _table_of_slices(figures: Figures) -> Table:
    table = Table("", "", "tasks", "rollouts", "pass@1", "mean reward", box=None, pad_edge=False)
    for one in figures.slices:
        mean = "-" if one.mean_reward is None else format_number(one.mean_reward)
        table.add_row(one.field, one.value, str(one.num_tasks), str(one.num_rewards), _describe(one.pass_at_1), mean)
    return table


def _describe(estimate: Estimate | None, sign: str = "") -> str:
    if estimate is None:
        return "-"
    value = format_number(estimate.value, sign)
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value}  [{format_number(estimate.low, sign)}, {format_number(estimate.high, sign)}]"
