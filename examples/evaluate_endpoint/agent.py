"""Agent for an evaluation: it asks the model once, and a scorer compares the last number of the answer."""

import re

from openai import AsyncOpenAI

from agent_layer.schema import Task, TaskView, Trajectory
from tracer import Rollout


async def agent(task: TaskView, rollout: Rollout) -> str:
    """Answer one question."""
    client = AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.api_key)
    answer = await client.chat.completions.create(
        model=rollout.model or "policy",
        messages=[{"role": "user", "content": f"{task.input} Answer with a number."}],
    )
    return answer.choices[0].message.content or ""


async def score(task: Task, trajectory: Trajectory, result: object) -> float:  # noqa: ARG001  # the scorer's signature
    """Return 1 when the last number of the answer is right."""
    numbers = re.findall(r"-?\d+", str(result))
    return float(bool(numbers) and int(numbers[-1]) == task.grading)
