"""Generated task sets: the id of a task names how it is drawn again, and what it contains decides its split."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count as count_from
from random import Random
from typing import Final, NamedTuple, cast

import msgspec

import tracer
from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, Split, TaskView, content_hash
from envs.env_context import Tool, make_context
from envs.script import Script

_EVAL_SHARE: Final = 0.25
_NUMBER: Final = "(0|[1-9][0-9]{0,17})"


class TaskKey(NamedTuple):
    """Where a task is in its set."""

    taskset: str
    level: int
    split: Split
    seed: int
    number: int

    @property
    def id(self) -> str:
        """Id of the task."""
        return f"{self.taskset}-{self.level}-{self.split}-{self.seed}-{self.number}"

    def make_rng(self, version: str) -> Random:
        """Return the randomness of the task, the same on every machine."""
        return Random(f"{self.id} of version {version}")


def list_keys(  # those of TaskSet.tasks, and what is allowed
    taskset: str, levels: range, *, split: Split, seed: int, level: int, count: int | None
) -> Iterator[TaskKey]:
    """Yield the keys of tasks, without end where ``count`` is None.

    Raises: BadInputError: no such level exists, or the seed is negative.
    """
    if level not in levels:
        raise BadInputError(f"task set {taskset!r}: expected a level from 0 to {levels[-1]}, found {level}")
    if seed < 0:
        raise BadInputError(f"task set {taskset!r}: expected a seed of 0 or more, found {seed}")
    return (TaskKey(taskset, level, split, seed, n) for n in (count_from() if count is None else range(count)))


def read_key(task_id: str, taskset: str, levels: range) -> TaskKey:
    """Return the key of an id; each task has one spelling.

    Raises: BadInputError: no task of this set has the id.
    """
    match = re.fullmatch(rf"{taskset}-{_NUMBER}-(train|eval)-{_NUMBER}-{_NUMBER}", task_id)
    if match is None or int(match[1]) not in levels:
        raise BadInputError(
            f"task set {taskset!r}: expected an id such as {taskset}-1-train-0-0, found {task_id:.200}; submit a task"
            " of it"
        )
    return TaskKey(taskset, int(match[1]), cast("Split", match[2]), int(match[3]), int(match[4]))


def choose_split(content: str) -> Split:
    """Return the only split that this content may be in, whatever the seed: a quarter of all is in ``eval``."""
    return "eval" if int(content_hash(content.encode())[:8], 16) < _EVAL_SHARE * 2**32 else "train"


def read_line(text: str, mark: str) -> str | None:
    """Return what stands behind a mark such as ``Answer``, without Markdown; None: not one line begins with it.

    Two lines that begin so are none: to offer several answers is to have no answer.
    """
    found = re.findall(rf"^[\s>*_#`-]*{mark}[ \t*_`]*:(.*)$", text, re.IGNORECASE | re.MULTILINE)
    return found[0].strip(" \t\r*_`") if len(found) == 1 else None


def write_replies(calls: Sequence[tuple[str, Mapping[str, object]]], text: str) -> list[JsonObject]:
    """Return what a model would send: one tool call after the other, and a last text.

    Args:
        calls: name and arguments of each call.
        text: the answer.
    """
    messages: list[JsonObject] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": msgspec.json.encode(arguments).decode()},
                }
            ],
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return [*messages, {"role": "assistant", "content": text}]


async def play_script(script: Script, tools: Sequence[Tool], task: TaskView, rollout: tracer.Rollout) -> object:
    """Carry out the tool calls of a script without a model; return its result. The core of scripted agents.

    Raises: BadInputError: a tool refuses a call, so that the script is wrong.
    """
    context = make_context(task, rollout, tools)
    tool_of_name = {tool.name: tool for tool in tools}
    for reply in script.replies:
        for one in cast("Sequence[JsonObject]", reply.get("tool_calls", ())):
            function = cast("JsonObject", one["function"])
            arguments = msgspec.json.decode(cast("str", function["arguments"]), type=dict[str, object])
            answer = await tool_of_name[cast("str", function["name"])](context, **arguments)
            if answer.is_error:
                raise BadInputError(f"task {task.id!r}: script {script.name!r} is refused, {answer.text}; correct it")
    return script.result
