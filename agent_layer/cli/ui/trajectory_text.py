"""Trajectories as text: a table of rows, and one trajectory step by step."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

import msgspec

from agent_layer.cli.ui.output import open_console
from agent_layer.cli.ui.tables import Column, TableView, draw
from agent_layer.infra import format_count
from agent_layer.schema import SHARED_JUDGE, JsonObject, as_json_object, as_json_objects, readable_message
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
    Column("engines", 10),
)
_STEP = Column("step", 0, is_text=True)

Kind = Literal["title", "plain", "system", "user", "assistant", "reasoning", "tool", "error", "reward"]
"""What a block of text is, from which its colour and its folding follow; other roles are shown as ``user``."""
_ROLES: dict[object, Kind] = {"system": "system", "developer": "system", "assistant": "assistant", "tool": "tool"}


class Block(NamedTuple):
    """Lines that belong together: one message, one answer of a tool, one fact."""

    lines: list[str]
    kind: Kind = "plain"


def print_rows(rows: Sequence[JsonObject]) -> None:
    """Draw one line for each row; rows with a step end with its message."""
    columns = [column for column in _COLUMNS if column.name != "findings" or any(row["findings"] for row in rows)]
    columns += [_STEP] if rows and "step" in rows[0] else []
    cells = [{column.name: _line(_cell(row, column.name)) for column in columns} for row in rows]
    console = open_console()
    console.print(draw(TableView(summary=[], columns=columns, cells=cells, rows=[], key=()), console.width))


def describe_trajectory(shown: JsonObject) -> Iterator[Block]:
    """Yield what there is to read of a trajectory as ``show_trajectory`` returns it, or of a row with one ``step``.

    Messages that the step before has shown are not repeated.
    """
    yield Block([str(shown["trajectory_id"])], "title")
    yield Block([f"  {name:<11} {_cell(shown, name)}" for name in _HEADER])
    if labels := cast("dict[str, str]", shown["labels"]):
        yield Block([f"  {'labels':<11} {', '.join(f'{name}={value}' for name, value in labels.items())}"])
    yield from _describe_outcome(cast("JsonObject", shown.get("outcome") or {}))
    earlier: list[object] = []
    for step in cast("list[JsonObject]", shown.get("steps", [shown.get("step")])):
        yield Block([""])
        yield from _describe_step(step, earlier)
        earlier = [*_messages(step), cast("JsonObject", step["action"])["message"]]
    rewards = cast("list[JsonObject]", shown.get("rewards", []))
    if rewards:
        yield Block([""])
    for reward in rewards:
        yield Block([_describe_reward(reward)], "reward")
    for label in cast("list[JsonObject]", shown.get("given_labels", [])):
        yield Block([_describe_label(label)], "reward")
    for resume in cast("list[JsonObject]", shown.get("resumes", [])):
        abandoned = format_count(len(cast("list[str]", resume["abandoned"])), "call")
        yield Block([f"resumed {resume['at']} by {_text(resume['worker'])}, {abandoned} abandoned"])
    for alarm in cast("list[JsonObject]", shown.get("alarms", [])):
        yield Block([f"alarm: {alarm['detail']}"], "error")


def _describe_outcome(outcome: JsonObject) -> Iterator[Block]:
    if outcome.get("error"):
        yield _labelled("  error: ", outcome["error"], "error")
    if outcome.get("traceback"):
        yield _labelled("    ", outcome["traceback"], "error")
    for finding in cast("list[str]", outcome.get("findings", [])):
        yield Block([f"  finding: {finding}"], "error")
    if used := cast("JsonObject | None", outcome.get("sandbox")):
        yield Block([f"  {'sandbox':<11} {_describe_sandbox(used)}"])


def _describe_sandbox(used: JsonObject) -> str:
    """Describe what the sandboxes of an attempt took; what is not known is left out."""
    usage = msgspec.convert(used, SandboxUsage)
    parts = [usage.kind or "unknown kind"]
    if usage.boot_seconds is not None:
        parts.append(f"ready after {usage.boot_seconds:.3g} s")
    parts.append(f"{format_count(usage.num_execs, 'command')} in {usage.exec_seconds:.3g} s")
    if usage.cpu_seconds is not None:
        parts.append(f"{usage.cpu_seconds:.3g} s of CPU")
    if usage.peak_memory_mb is not None:
        parts.append(f"at most {usage.peak_memory_mb:.3g} MB")
    parts.append(f"{usage.output_bytes:,} bytes of output")
    if usage.num_scoring_boxes:
        boxes = format_count(usage.num_scoring_boxes, "fresh box")
        parts.append(f"scored in {boxes}, {usage.scoring_seconds or 0:.3g} s")
    return ", ".join(parts)


def _describe_reward(reward: JsonObject) -> str:
    standing = "" if reward["is_current"] else "  (void)" if reward["void"] else "  (superseded)"
    why = f"  {reward['status']}: {reward['error']}" if reward["error"] else ""
    comment = f"  “{reward['comment']}”" if reward["comment"] else ""
    judge = f"  judge: shared, {SHARED_JUDGE}" if reward["judge"] else ""
    line = f"{reward['name']}{_judged(reward)} = {_text(reward['score'])}  by {reward['source']}{judge}"
    return f"reward {line}{why}{standing}{comment}"


def _describe_label(label: JsonObject) -> str:
    line = f"= {label['value']}" if label["value"] is not None else "withdrawn"
    comment = f"  “{label['comment']}”" if label["comment"] else ""
    return (
        f"label {label['name']} {line}  by {label['source']}{'' if label['is_current'] else '  (superseded)'}{comment}"
    )


def _judged(reward: JsonObject) -> str:
    """Return what a reward judges, unless it judges the rollout."""
    match reward["scope"]:
        case "step":
            return f" of step {reward['step']}"
        case "agent":
            return f" of agent {reward['agent']}"
        case _:
            return ""


def _describe_step(step: JsonObject, earlier: list[object]) -> Iterator[Block]:
    action = cast("JsonObject", step["action"])
    yield Block([_title(step, action)], "title")
    messages = _messages(step)
    num_known = next((at for at, one in enumerate(messages) if earlier[at : at + 1] != [one]), len(messages))
    for message in [*messages[num_known:], action["message"]]:
        yield from _describe_message(message)
    for one in cast("list[JsonObject]", step["observations"]):
        yield _labelled(f"  {one['name']}({_text(one['arguments'])}) → ", one["output"], "tool", indent=4)
    if step["error"]:
        yield _labelled("  error: ", step["error"], "error")
    for finding in cast("list[str]", step["findings"]):
        yield Block([f"  finding: {finding}"], "error")


def _title(step: JsonObject, action: JsonObject) -> str:
    agent = "/".join(cast("list[str]", step["agent_path"]))
    parts = [f"step {step['index']}", *(str(one) for one in (agent, step["node"], step["status"]) if one)]
    prompt, response = (cast("list[int] | None", action[f"{name}_token_ids"]) for name in ("prompt", "response"))
    if prompt is not None and response is not None:
        parts.append(f"{len(prompt)} + {len(response)} tokens")
    if versions := cast("list[tuple[int, int]] | None", action["policy_versions"]):
        parts.append(f"policy {', '.join(str(version) for version, _ in versions)}")
    if step["engine"] is not None:
        parts.append(f"by {step['engine']}")
    if step["reward"] is not None:
        parts.append(f"reward {step['reward']:g}")
    if step["duration_ms"] is not None:
        parts.append(f"{step['duration_ms']:g} ms")
    return "  ".join(parts)


def _describe_message(value: object) -> Iterator[Block]:
    if value is None:
        yield Block(["  (no answer)"], "error")
        return
    message = readable_message(value)
    role = message.get("role", "assistant")
    kind = _ROLES.get(role, "user")
    if reasoning := message.get("reasoning_content") or message.get("reasoning"):
        yield _labelled(f"  {role} thinks: ", reasoning, "reasoning")
    if message.get("content"):
        yield _labelled(f"  {role}: ", _content_text(message["content"]), kind)
    for call in as_json_objects(message.get("tool_calls")):
        function = as_json_object(call.get("function"))
        yield Block([f"  {role} calls {function.get('name')}({_text(function.get('arguments'))})"], kind)


def _content_text(content: object) -> object:
    """Return the texts of a message whose content is a list of parts; other parts are named by their kind."""
    if not isinstance(content, list):
        return content
    return "\n".join(_part_text(part) for part in cast("list[object]", content))


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        return _text(part)
    fields = cast("JsonObject", part)
    return _text(fields["text"]) if "text" in fields else f"[{_text(fields.get('type', 'part'))}]"


def _labelled(label: str, text: object, kind: Kind, indent: int | None = None) -> Block:
    """Return a text, its lines below each other; later ones are indented as far as the first, or as told."""
    first, *rest = _text(text).splitlines() or [""]
    blanks = " " * (len(label) if indent is None else indent)
    return Block([label + first, *(blanks + line for line in rest)], kind)


def _messages(step: JsonObject) -> list[object]:
    return cast("list[object]", cast("JsonObject", step["state"])["messages"] or [])


def _cell(row: JsonObject, column: str) -> str:
    match column:
        case "policy":
            low, high = row["policy_min"], row["policy_max"]
            return _text(low) if low == high else f"{_text(low)}..{_text(high)}"
        case "agents" | "findings" | "engines":
            return ", ".join(cast("list[str]", row[column]))
        case "step":
            step = cast("JsonObject", row["step"])
            message = cast("JsonObject", step["action"])["message"]
            return " ".join(line for block in _describe_message(message) for line in block.lines).strip()
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
