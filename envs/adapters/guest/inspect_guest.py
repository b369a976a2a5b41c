"""Tasks of inspect_ai: their solver plays a sample as it does by itself, and asks us in place of a model.

Samples that need a sandbox are refused: their commands would run on this machine.
"""

# runs with foreign packages only
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

import asyncio
import copy
import hashlib
import json
import tempfile
from importlib import metadata
from random import Random

from guest_protocol import (
    Ask,
    AttemptEnded,
    RefusalError,
    Request,
    describe_version,
    explain_missing_names,
    readable_errors,
    serve,
)

_PACKAGE = describe_version("inspect-ai", "0.3.285")
with explain_missing_names(_PACKAGE):
    from inspect_ai import Task, eval_async
    from inspect_ai._eval.loader import load_tasks, resolve_task_args
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelAPI, get_model, messages_to_openai, modelapi
    from inspect_ai.model._openai import (
        chat_choices_from_openai,
        model_output_from_openai,
        openai_chat_tool_choice,
        openai_chat_tools,
        openai_completion_params,
    )
    from inspect_ai.scorer import value_to_float
    from inspect_ai.util import LimitExceededError
    from openai.types.chat import ChatCompletion

_asking: list[Ask] = []
"""Model calls of the sample that is played: their ``eval`` runs once at a time in a process."""
_one_at_a_time = asyncio.Lock()


@modelapi(name="agent_layer")
class GatewayAPI(ModelAPI):
    """Answers model calls with completions of ours; the name of the model is the role."""

    async def generate(self, input, tools, tool_choice, config):  # noqa: A002  # their signature
        """Return one completion; where there is none any more, the sample ends as at its limit of turns."""
        body: Request = {"messages": await messages_to_openai(input)}
        body |= openai_completion_params("policy", config, bool(tools))
        body |= body.pop("extra_body", {})
        del body["model"]
        if tools:
            body |= {"tools": openai_chat_tools(tools), "tool_choice": openai_chat_tool_choice(tool_choice)}
        try:
            answer = await _asking[-1](self.model_name, body)
        except AttemptEnded as error:
            raise LimitExceededError("turn", value=0, limit=0, message=str(error)) from error
        completion = ChatCompletion.model_validate(answer)
        return model_output_from_openai(completion, chat_choices_from_openai(completion, tools))


class _Loaded:
    """A task, and its samples by what they are."""

    def __init__(self, spec: str, options: Request) -> None:
        with readable_errors(f"inspect task {spec!r}"):
            tasks = load_tasks([spec], options)
        if len(tasks) != 1:
            names = ", ".join(task.name for task in tasks) or "none"
            raise RefusalError(
                f"inspect task {spec!r}: expected one task, found {len(tasks)} ({names}); write FILE.py@TASK"
            )
        self.task: Task = tasks[0]
        if unknown := options.keys() - resolve_task_args(self.task).keys():
            raise RefusalError(f"inspect task {spec!r}: it takes no argument {', '.join(sorted(unknown))}")
        if self.task.sandbox is not None:
            raise RefusalError(f"inspect task {spec!r}: it needs a sandbox ({self.task.sandbox.type})")
        if not self.task.scorer:
            raise RefusalError(f"inspect task {spec!r}: it has no scorer")
        self.samples = {_key(sample): (number, sample) for number, sample in enumerate(self.task.dataset)}


def _key(sample: Sample) -> str:
    text = json.dumps(sample.model_dump(mode="json", exclude={"id"}), sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


_loaded: dict[str, _Loaded] = {}


def _load(taskset: Request) -> _Loaded:
    key = json.dumps(taskset, sort_keys=True)
    if key not in _loaded:
        options = {name: value for name, value in taskset.items() if name not in ("id", "reward")}
        _loaded[key] = _Loaded(taskset["id"], options)
    return _loaded[key]


async def list_tasks(request: Request, _ask: Ask) -> Request:
    """Return samples in order of a seed, and what is known of the task."""
    loaded = _load(request["taskset"])
    found = list(loaded.samples.items())
    if request["seed"]:
        Random(request["seed"]).shuffle(found)
    shown = found[request["start"] : request["start"] + request["count"]]
    tasks = [await _describe(key, number, sample) for key, (number, sample) in shown]
    return {"tasks": tasks, "version": f"inspect_ai-{metadata.version('inspect_ai')} task-{loaded.task.version}"}


async def _describe(key: str, number: int, sample: Sample) -> Request:
    if sample.sandbox is not None:
        raise RefusalError(f"inspect sample {sample.id or number + 1}: it needs a sandbox ({sample.sandbox.type})")
    prompt = sample.input
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else await messages_to_openai(prompt)
    if sample.choices:
        messages.append({"role": "user", "content": json.dumps({"choices": sample.choices})})
    grading = {"target": sample.target, "metadata": sample.metadata or {}}
    return {"index": number, "key": key, "messages": messages, "grading": grading}


async def run(request: Request, ask: Ask) -> Request:
    """Play one sample to its end; return its scores if it is to be scored."""
    loaded = _load(request["taskset"])
    if request["key"] not in loaded.samples:
        raise RefusalError(f"inspect sample {request['index'] + 1}: it is not what it was when it was listed")
    number, sample = loaded.samples[request["key"]]
    task = copy.copy(loaded.task)
    task.dataset = MemoryDataset([sample.model_copy(update={"id": sample.id or number + 1})])
    async with _one_at_a_time:
        _asking.append(ask)
        try:
            return await _evaluate(task, request)
        finally:
            _asking.pop()


async def _evaluate(task: Task, request: Request) -> Request:
    judge = get_model("agent_layer/judge")
    with tempfile.TemporaryDirectory() as folder:
        (log,) = await eval_async(
            task, model="agent_layer/policy", model_roles={"grader": judge}, score=request["is_scored"], epochs=1,
            log_dir=folder, log_format="json", log_realtime=False, ctl_server=False, retry_on_error=0,
        )  # fmt: skip
    sample = log.samples[0] if log.samples else None
    error = (sample and sample.error) or log.error
    if sample is None or error:
        raise RuntimeError(error.message if error else "the sample was not played")
    limit = sample.limit.type if sample.limit else None
    values = {name: score.value for name, score in (sample.scores or {}).items()}
    parts = {name: one for scorer, value in values.items() for name, one in _numbers(scorer, value).items()}
    named = request["taskset"].get("reward")
    if named and parts and named not in parts:
        raise RefusalError(f"inspect task {request['taskset']['id']!r}: no score {named!r} among {', '.join(parts)}")
    first = next(iter(values), None)
    if not named and first not in parts and parts:
        raise RefusalError(
            f"inspect task {request['taskset']['id']!r}: {first!r} gives several scores; name one, ?reward=one of"
            f" {', '.join(parts)}"
        )
    return {
        "reward": parts.get(named or first or ""),
        "parts": {name: {"score": value, "weight": float(name == (named or first))} for name, value in parts.items()},
        "metrics": {},
        "stop": limit,
    }


def _numbers(scorer: str, value: object) -> dict[str, float]:
    """Return a score as numbers, as their metrics read it: by scorer, or by ``scorer.name``."""
    if isinstance(value, dict):
        return {f"{scorer}.{name}": value_to_float()(one) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return {f"{scorer}.{place}": value_to_float()(one) for place, one in enumerate(value)}
    return {scorer: value_to_float()(value)}


if __name__ == "__main__":
    serve({"list": list_tasks, "run": run}, _PACKAGE)
