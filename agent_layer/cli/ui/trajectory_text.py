"""Trajectories as text: a table of rows, and one trajectory step by step."""

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from agent_layer.cli.ui.output import format_count, open_console
from agent_layer.cli.ui.tables import Column, TableView, draw
from agent_layer.schema import JsonObject, as_json_object
from agent_layer.schema.sandbox import SandboxUsage

_HEADER = ("run", "task_id", "task_type", "group_id", "status", "cause", "accepted", "reward", "policy", "started_at")
_COLUMNS = (
    Column("trajectory_id", 0),
    Column("run", 5),
    Column("task_id", 2),
    Column("status", 1, is_state=True),
    Column("accepted", 3),
    Column("reward", 0, is_number=True),
    Column("num_steps", 6, is_number=True),
    Column("policy", 4, is_number=True),
    Column("findings", 7),
    Column("agents", 8),
    Column("started_at", 9),
)
_STEP = Column("step", 0, is_text=True)


def print_rows(rows: Sequence[JsonObject]) -> None:
    """Draw one line for each row; rows with a step end with its message."""
    columns = [column for column in _COLUMNS if column.name != "findings" or any(row["findings"] for row in rows)]
    columns += [_STEP] if rows and "step" in rows[0] else []
    cells = [{column.name: _line(_cell(row, column.name)) for column in columns} for row in rows]
    console = open_console()
    console.print(draw(TableView(summary=[], columns=columns, cells=cells, rows=[], key=()), console.width))


def describe_trajectory(shown: JsonObject) -> Iterator[str]:
    """Yield lines about a trajectory as ``show_trajectory`` returns it, or about a row with one ``step``.

    Messages that the step before has shown are not repeated.
    """
    yield str(shown["trajectory_id"])
    for name in _HEADER:
        yield f"  {name:<11} {_cell(shown, name)}"
    outcome = cast("JsonObject", shown.get("outcome") or {})
    yield from _describe_outcome(outcome)
    earlier: list[object] = []
    for step in cast("list[JsonObject]", shown.get("steps", [shown.get("step")])):
        yield ""
        yield from _describe_step(step, earlier)
        earlier = [*_messages(step), cast("JsonObject", step["action"])["message"]]
    rewards = cast("list[JsonObject]", shown.get("rewards", []))
    yield from ([""] if rewards else [])
    for reward in rewards:
        yield _describe_reward(reward)
    for resume in cast("list[JsonObject]", shown.get("resumes", [])):
        num_abandoned = len(cast("list[str]", resume["abandoned"]))
        yield f"resumed {resume['at']} by {_text(resume['worker'])}, {format_count(num_abandoned, 'call')} abandoned"
    for alarm in cast("list[JsonObject]", shown.get("alarms", [])):
        yield f"alarm: {alarm['detail']}"


def _describe_outcome(outcome: JsonObject) -> Iterator[str]:
    if outcome.get("error"):
        yield from _labelled("  error: ", outcome["error"])
    for finding in cast("list[str]", outcome.get("findings", [])):
        yield f"  finding: {finding}"
    if used := cast("JsonObject | None", outcome.get("sandbox")):
        yield f"  {'sandbox':<11} {_describe_sandbox(used)}"


def _describe_sandbox(used: JsonObject) -> str:
    """Describe what the sandboxes of an attempt took; what is not known is left out."""
    usage = msgspec.convert(used, SandboxUsage)
    said = [usage.kind or "unknown kind"]
    if usage.boot_seconds is not None:
        said.append(f"ready after {usage.boot_seconds:.3g} s")
    said.append(f"{format_count(usage.num_execs, 'command')} in {usage.exec_seconds:.3g} s")
    if usage.cpu_seconds is not None:
        said.append(f"{usage.cpu_seconds:.3g} s of CPU")
    if usage.peak_memory_mb is not None:
        said.append(f"at most {usage.peak_memory_mb:.3g} MB")
    said.append(f"{usage.output_bytes:,} bytes of output")
    if usage.num_scoring_boxes:
        boxes = f"{usage.num_scoring_boxes} fresh {'box' if usage.num_scoring_boxes == 1 else 'boxes'}"
        said.append(f"scored in {boxes}, {usage.scoring_seconds or 0:.3g} s")
    return ", ".join(said)


def _describe_reward(reward: JsonObject) -> str:
    standing = "" if reward["is_current"] else "  (void)" if reward["void"] else "  (superseded)"
    why = f"  {reward['status']}: {reward['error']}" if reward["error"] else ""
    comment = f"  “{reward['comment']}”" if reward["comment"] else ""
    said = f"{reward['name']}{_judged(reward)} = {_text(reward['score'])}  by {reward['source']}"
    return f"reward {said}{why}{standing}{comment}"


def _judged(reward: JsonObject) -> str:
    """Return what a reward judges, unless it judges the rollout."""
    match reward["scope"]:
        case "step":
            return f" of step {reward['step']}"
        case "agent":
            return f" of agent {reward['agent']}"
        case _:
            return ""


def _describe_step(step: JsonObject, earlier: list[object]) -> Iterator[str]:
    action = cast("JsonObject", step["action"])
    yield _title(step, action)
    messages = _messages(step)
    num_known = next((at for at, one in enumerate(messages) if earlier[at : at + 1] != [one]), len(messages))
    for message in [*messages[num_known:], action["message"]]:
        yield from _describe_message(cast("JsonObject | None", message))
    for one in cast("list[JsonObject]", step["observations"]):
        yield f"  {one['name']}({_text(one['arguments'])}) → {_text(one['output'])}"
    if step["error"]:
        yield from _labelled("  error: ", step["error"])
    for finding in cast("list[str]", step["findings"]):
        yield f"  finding: {finding}"


def _title(step: JsonObject, action: JsonObject) -> str:
    agent = "/".join(cast("list[str]", step["agent_path"]))
    parts = [f"step {step['index']}", *(str(one) for one in (agent, step["node"], step["status"]) if one)]
    prompt, response = (cast("list[int] | None", action[f"{name}_token_ids"]) for name in ("prompt", "response"))
    if prompt is not None and response is not None:
        parts.append(f"{len(prompt)} + {len(response)} tokens")
    if versions := cast("list[tuple[int, int]] | None", action["policy_versions"]):
        parts.append(f"policy {', '.join(str(version) for version, _ in versions)}")
    if step["reward"] is not None:
        parts.append(f"reward {step['reward']:g}")
    if step["duration_ms"] is not None:
        parts.append(f"{step['duration_ms']:g} ms")
    return "  ".join(parts)


def _describe_message(message: JsonObject | None) -> Iterator[str]:
    if message is None:
        yield "  (no answer)"
        return
    role = message.get("role", "assistant")
    if message.get("content"):
        yield from _labelled(f"  {role}: ", _content_text(message["content"]))
    for call in cast("list[JsonObject]", message.get("tool_calls") or []):
        function = cast("JsonObject", call.get("function") or {})
        yield f"  {role} calls {function.get('name')}({_text(function.get('arguments'))})"


def _content_text(content: object) -> object:
    """Return the texts of a message whose content is a list of parts; other parts are named by their kind."""
    if not isinstance(content, list):
        return content
    parts = [as_json_object(part) for part in cast("list[object]", content)]
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]" for part in parts)


def _labelled(label: str, text: object) -> Iterator[str]:
    """Yield a text, its lines below each other."""
    first, *rest = _text(text).splitlines() or [""]
    yield label + first
    yield from (" " * len(label) + line for line in rest)


def _messages(step: JsonObject) -> list[object]:
    return cast("list[object]", cast("JsonObject", step["state"])["messages"] or [])


def _cell(row: JsonObject, column: str) -> str:
    match column:
        case "policy":
            low, high = row["policy_min"], row["policy_max"]
            return _text(low) if low == high else f"{_text(low)}..{_text(high)}"
        case "agents" | "findings":
            return ", ".join(cast("list[str]", row[column]))
        case "step":
            step = cast("JsonObject", row["step"])
            said = " ".join(_describe_message(cast("JsonObject | None", cast("JsonObject", step["action"])["message"])))
            return said.strip()
        case _:
            return _text(row[column])


def _line(text: str) -> str:
    return " ".join(text.split())


def _text(value: object) -> str:
    """Return a value as a person reads it; an unknown one is a dash."""
    match value:
        case None:
            return "-"
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return msgspec.json.encode(value).decode()
