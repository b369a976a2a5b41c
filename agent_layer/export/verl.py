"""Tasks of stored trajectories in veRL's dataset format: one row for each task.

    prompt        list<struct<role, content>>: the model's first prompt, text only
    data_source   task type; selects veRL's reward function
    ability       task type
    reward_model  struct<style: "rule", ground_truth: grading of the task, as text>
    extra_info    struct<index, split, run, task_id, trajectory_id, input (JSON of the task), tools (JSON)>

See ``verl/utils/dataset/rl_dataset.py`` of veRL 0.9.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from agent_layer.export.files import write_export
from agent_layer.schema import JsonObject, Trajectory, as_json_object, as_json_objects, resolve
from agent_layer.store import JSON, TrajectoryRow, json_text

_BATCH = 512

_MESSAGE = pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())])
_REWARD = pa.struct([pa.field("style", pa.string()), pa.field("ground_truth", pa.string())])
_EXTRA = pa.struct(
    [
        pa.field("index", pa.int64()),
        *(pa.field(name, pa.string()) for name in ("split", "run", "task_id", "trajectory_id")),
        pa.field("input", JSON),
        pa.field("tools", JSON),
    ]
)

_SCHEMA: Final = pa.schema(
    [
        pa.field("prompt", pa.list_(_MESSAGE)),
        pa.field("data_source", pa.string()),
        pa.field("ability", pa.string()),
        pa.field("reward_model", _REWARD),
        pa.field("extra_info", _EXTRA),
    ]
)


def first_of_each_task(rows: Iterable[TrajectoryRow]) -> Iterator[TrajectoryRow]:
    """Keep the first row of each task and run; drop rows without a task."""
    seen: set[tuple[str | None, str | None]] = set()
    for row in rows:
        if (key := (row.run, row.task_id)) not in seen and row.task_id is not None:
            seen.add(key)
            yield row


def verl_row(trajectory: Trajectory, index: int) -> JsonObject | None:
    """Return the row of a trajectory's task; None if its prompt is not known or not only text."""
    started, task = trajectory.started, trajectory.task
    prompt = _prompt(trajectory)
    if started is None or not prompt:
        return None
    first = next(iter(trajectory.steps), None)
    tools = first.state.tools if first else None
    grading = task.grading if task else None
    return {
        "prompt": prompt,
        "data_source": started.task_type,
        "ability": started.task_type,
        "reward_model": {"style": "rule", "ground_truth": grading if isinstance(grading, str) else json_text(grading)},
        "extra_info": {
            "index": index,
            "split": started.split,
            "run": started.run,
            "task_id": started.task_id,
            "trajectory_id": trajectory.trajectory_id,
            "input": json_text(task.input) if task else None,
            "tools": json_text(resolve(trajectory.contents, tools)) if tools else None,
        },
    }


def write_verl(path: Path, tasks: Iterable[JsonObject | None]) -> tuple[int, int]:
    """Write rows into a Parquet file; return the numbers of rows written and of None values skipped.

    Raises: BadInputError: the file cannot be written.
    """
    remaining, num_written, num_left_out = iter(tasks), 0, 0
    with write_export(path) as unfinished, pq.ParquetWriter(unfinished, _SCHEMA, compression="zstd") as writer:
        while batch := list(islice(remaining, _BATCH)):
            rows = [row for row in batch if row is not None]
            if rows:  # ``datasets`` cannot read an empty row group
                writer.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA))
            num_written, num_left_out = num_written + len(rows), num_left_out + len(batch) - len(rows)
    return num_written, num_left_out


def _prompt(trajectory: Trajectory) -> list[JsonObject] | None:
    """Return the policy's first prompt; without a model call, the task's input."""
    for step in trajectory.steps:
        if step.role == "policy" and step.state.messages:
            messages = [_message(resolve(trajectory.contents, one)) for one in step.state.messages]
            return None if None in messages else cast("list[JsonObject]", messages)
    task_input = trajectory.task.input if trajectory.task else None
    if task_input is None:
        return None
    return [
        {
            "role": "user",
            "content": task_input if isinstance(task_input, str) else msgspec.json.encode(task_input).decode(),
        }
    ]


def _message(value: object) -> JsonObject | None:
    """Return a message as role and text; None if it has other content."""
    message = as_json_object(value)
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text") for part in as_json_objects(content)]
    is_text = bool(texts) and all(isinstance(text, str) for text in texts)
    if not is_text or message.get("tool_calls") or not isinstance(message.get("role"), str):
        return None
    return {"role": message["role"], "content": "".join(cast("list[str]", texts))}
