"""Calls of judges: models that scorers ask, through the gateway, recorded and limited, and never trained.

The attempt that is judged is closed, so its key opens nothing. A scorer's first question opens a rollout of its own,
of split eval, type ``judge`` and run ``RUN:judge``, whose label ``judges`` names the trajectory. Each call has the role
``aux``. What a judge costs can be found there, and nothing of it enters the judged trajectory, its group or its run.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from agent_layer.errors import AgentLayerError, UnreachableError
from agent_layer.schema import AGENT_HEADER, ROLE_HEADER, JsonObject, Limits, OpenedRollout, OpenRequest
from envs.failures import ModelCallError
from tracer.transport import GatewayClient

JUDGE = "judge"
"""Type of a judge's task, and name of the agent that asks."""
JUDGED = "judges"
"""Label of a judge's rollout: the trajectory that is judged."""
_MAX_CALLS = 64
"""Questions of one scorer about one attempt."""
_GRACE_SECONDS = 60.0
"""The key of a rollout that nothing ended, because its process died, expires so long after its time."""
_MAX_RUN_LENGTH = 120

_log = logging.getLogger(__name__)


def judge_run(run: str) -> str:
    """Return the run of the judges of a run's attempts."""
    return f"{run[:_MAX_RUN_LENGTH]}:{JUDGE}"


class JudgeCalls:
    """Judge of one run of a scorer; ``close`` ends its rollout.

    Args:
        gateway: with the operator's key.
        run: run of the judged attempt.
        trajectory_id: the judged attempt.
        task_id: its task.
        seconds: time limit of the scorer.
        max_calls: questions that may be asked.
    """

    def __init__(
        self,
        gateway: GatewayClient,
        *,
        run: str,
        trajectory_id: str,
        task_id: str,
        seconds: float,
        max_calls: int = _MAX_CALLS,
    ) -> None:
        self._gateway = gateway
        self._request = OpenRequest(
            task_id=task_id,
            task_type=JUDGE,
            run=judge_run(run),
            split="eval",
            agent=JUDGE,
            labels={JUDGED: trajectory_id},
            limits=Limits(wall_seconds=seconds),
            lease_seconds=seconds + _GRACE_SECONDS,
            calls_optional=True,
        )
        self._seconds = seconds
        self._max_calls = self._num_left = max_calls
        self._opening: asyncio.Task[OpenedRollout] | None = None

    async def ask(self, messages: Sequence[JsonObject], sampling: JsonObject) -> str:
        """Return the judge's answer.

        Raises:
            ModelCallError: the gateway refused the call, or no more are allowed.
            UnreachableError: the gateway does not answer.
        """
        if self._num_left == 0:
            limit = f"judge: the limit of {self._max_calls} model calls is reached; ask less about one attempt"
            raise ModelCallError(limit, HTTPStatus.TOO_MANY_REQUESTS)
        self._num_left -= 1
        if self._opening is None:
            self._opening = asyncio.create_task(asyncio.to_thread(self._gateway.open, self._request))
        opened = await asyncio.shield(self._opening)
        headers = {"Authorization": f"Bearer {opened.api_key}", ROLE_HEADER: "aux", AGENT_HEADER: JUDGE}
        body = {"model": opened.model, **sampling, "messages": list(messages)}
        address = f"{opened.base_url}/chat/completions"
        try:
            async with (
                ClientSession(timeout=ClientTimeout(total=self._seconds)) as client,
                client.post(address, json=body, headers=headers) as response,
            ):
                answer = await response.read()
        except ClientError as error:
            raise UnreachableError(
                f"judge: the gateway did not answer, {error!r}; the attempt is judged again"
            ) from error
        if response.status != 200:
            reason = answer[:1000].decode("utf-8", "replace")
            raise ModelCallError(f"judge: the gateway answered {response.status} {reason}", response.status)
        return msgspec.json.decode(answer, type=_Completion).choices[0].message.content or ""

    async def close(self) -> None:
        """End the rollout, if a question opened it. Where that fails, the gateway ends it when its key expires."""
        if self._opening is None:
            return
        with suppress(AgentLayerError):
            opened = await self._opening
            end = partial(self._gateway.end, opened.rollout_id, attempt=opened.attempt)
            try:
                await asyncio.to_thread(end)
            except AgentLayerError as error:
                _log.warning("rollout of a judge not ended rollout=%s error=%s", opened.rollout_id, error)


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: list[_Choice]
