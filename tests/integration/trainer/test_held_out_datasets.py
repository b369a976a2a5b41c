"""Datasets of stored trajectories: nothing of a held-out task is in one, whichever command writes it."""

import msgspec
import pyarrow.parquet as pq
import pytest

from agent_layer.infra import append_line
from agent_layer.schema.contamination.held_out import hold_out
from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import PromptDelta
from agent_layer.schema.task import Task, hash_input
from agent_layer.store import open_store

from ...builders import attempt, call, closed_group, sampled
from ...stored import write_segment

SECRET = Task(id="h", run="e", split="eval", input="What is six times seven?")
PLAYED = {
    "clean": Task(id="clean", run="r", input="What is 6 times 8?"),
    "same": msgspec.structs.replace(SECRET, id="same", split="train"),
    "dressed": Task(id="dressed", run="r", input={"question": "What is **six** times seven"}),
}


@pytest.fixture(autouse=True)
def played(settings):
    """Two rollouts of each task; the second is right."""
    store = open_store(settings)
    for task in PLAYED.values():
        names = [f"{task.id}.0-0", f"{task.id}.1-0"]
        for score, name in enumerate(names):
            own = {"prompt": PromptDelta(delta=TokenIds([1])), "capture_level": "tokens", "temperature": 1.0}
            parts = call(name, "a", sampled(4 + score, finish_reason="stop"), **own)
            known = {"task": task, "task_id": task.id, "input_hash": hash_input(task), "group_id": f"g-{task.id}"}
            write_segment(store, *attempt(name, *parts, score=float(score), **known))
        group = closed_group(f"g-{task.id}", *names, task_id=task.id, group_size=2)
        write_segment(store, group)


COMMANDS = {
    "sft": (["sft", "OUT", "--format", "jsonl"], 2, 4),
    "pairs": (["pairs", "OUT", "--format", "jsonl"], 1, 4),
    "steps": (["steps", "OUT", "--format", "jsonl"], 2, 4),
    "verl": (["verl", "OUT", "--groups", "1"], 2, 4),
}


def count_rows(path):
    if path.is_file():
        return {(row["trajectory_id"].split(".")[0]) for row in pq.read_table(path).to_pylist()}, pq.read_table(
            path
        ).num_rows
    lines = [line for file in path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return {name for name in PLAYED if any(f'"{name}.' in line for line in lines)}, len(lines)


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_row_is_of_a_held_out_task(agent_layer, settings, tmp_path, command, is_recorded):
    arguments, num_rows, num_left_out = COMMANDS[command]
    out, held_out = tmp_path / "out.parquet", tmp_path / "held-out.jsonl"
    held_out.write_bytes(msgspec.json.encode({"id": "h", "input": SECRET.input}) + b"\n")
    if is_recorded:
        append_line(settings.dir / "runs" / "r" / "held_out.jsonl", hold_out("test", [SECRET]))
    options = [] if is_recorded else ["--held-out", held_out]

    status, _, err = agent_layer("store", "export", *(out if one == "OUT" else one for one in arguments), *options)

    assert status == 0, err
    assert count_rows(out) == ({"clean"}, num_rows)
    assert f"left out: {num_left_out} held_out" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_without_held_out_tasks_all_are_written(agent_layer, tmp_path, command):
    arguments, num_rows, _ = COMMANDS[command]
    out = tmp_path / "out.parquet"

    status, _, err = agent_layer("store", "export", *(out if one == "OUT" else one for one in arguments))

    assert status == 0, err
    assert count_rows(out) == (set(PLAYED), 3 * num_rows)
