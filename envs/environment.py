"""This file holds environments: worlds that answer what the model says, and the loop in which it plays in one."""

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec
from aiohttp import ClientSession, ClientTimeout

from agent_layer.schema import JsonObject, Observation, StepPart, StepState, Task, new_id
from agent_layer.schema.wire import CALL_HEADER
from envs.failures import ModelCallError
from envs.progress import current_progress
from tracer.core import ContentWriter, Rollout, json_value

_NO_LIMIT = ClientTimeout(total=None)
"""The gateway limits how long a call takes, the task how long the attempt does."""


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment answers to one action."""

    observation: object = None
    """What the model is told next; any JSON value."""
    reward: float | None = None
    """For this step; None: none was given. The rewards of all steps add up to that of the rollout."""
    done: bool = False


@runtime_checkable
class Environment(Protocol):
    """One world for one attempt. It sees the task without its grading, which only scorers see.

    A class may declare its ``version`` (text or number), to be raised when it answers otherwise than before; without
    one, the file in which it stands is its version. Trajectories name it.
    """

    async def reset(self, task: Task) -> object:
        """Begin; give what the model is told first."""
        ...

    async def step(self, action: str) -> StepResult:
        """Take what the model said."""
        ...

    def state(self) -> object:
        """Give what the world is like now; any JSON value, None where it cannot be told."""
        ...

    async def close(self) -> None:
        """Give back what was taken."""
        ...


async def play(make: Callable[[], Environment], task: Task, rollout: Rollout) -> float | None:
    """Let the model play one attempt: each observation is a user message, each answer an action.

    Returns: sum of the rewards; None when the environment gave none.
    """
    environment = make()
    try:
        async with ClientSession(timeout=_NO_LIMIT) as client:
            return await _play(environment, task, rollout, client)
    finally:
        await environment.close()


async def _play(environment: Environment, task: Task, rollout: Rollout, client: ClientSession) -> float | None:
    messages: list[JsonObject] = []
    total: float | None = None
    result = StepResult(observation=await environment.reset(task))
    current_progress().start()
    while not result.done:
        messages.append({"role": "user", "content": _text(result.observation)})
        call_id = new_id()
        _record_state(rollout, call_id, environment)
        action = await _ask(client, rollout, call_id, messages)
        messages.append({"role": "assistant", "content": action})
        began = time.time()
        result = await environment.step(action)
        _record_answer(rollout, call_id, environment, action, result, began=began)
        if result.reward is not None:
            total = (total or 0.0) + result.reward
    return total


async def _ask(client: ClientSession, rollout: Rollout, call_id: str, messages: list[JsonObject]) -> str:
    """Give the model's answer.

    Raises: ModelCallError: the gateway refused, for example because the task's limits are reached.
    """
    headers = {"Authorization": f"Bearer {rollout.api_key}", CALL_HEADER: call_id}
    body = {"model": rollout.model or "policy", "messages": messages}
    async with client.post(f"{rollout.base_url}/chat/completions", json=body, headers=headers) as response:
        answer = await response.read()
    if response.status != 200:
        said = answer[:1000].decode("utf-8", "replace")
        raise ModelCallError(
            f"model call {call_id}: expected an answer, found {response.status} {said}", response.status
        )
    return msgspec.json.decode(answer, type=_Completion).choices[0].message.content or ""


def _record_state(rollout: Rollout, call_id: str, environment: Environment) -> None:
    """Say what the world was like when the model was asked."""
    contents = ContentWriter(rollout)
    state = StepState(environment=contents.add(environment.state()))
    part = StepPart(
        trajectory_id=rollout.trajectory_id,
        call_id=call_id,
        run=rollout.run,
        source="handler",
        phase="start",
        at=time.time(),
        state=state,
    )
    contents.write(part)


def _record_answer(
    rollout: Rollout, call_id: str, environment: Environment, action: str, result: StepResult, *, began: float
) -> None:
    now = time.time()
    observation = Observation(
        trajectory_id=rollout.trajectory_id,
        observation_id=new_id(),
        run=rollout.run,
        name=type(environment).__name__,
        at=now,
        call_id=call_id,
        arguments=action,
        output=json_value(result.observation),
        status="ok",
        duration_seconds=now - began,
    )
    rollout.append(observation)


def _text(told: object) -> str:
    return told if isinstance(told, str) else msgspec.json.encode(told).decode()


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]
