"""One run of a scorer over one attempt: what the scorer sees, and the boxes that are closed after it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.schema import JsonObject, Task, Trajectory
from agent_layer.schema.sandbox import Sandbox, SandboxSpec, Snapshot
from envs.grading.box import BoxLog, ScoringBox, TakeBox

AskJudge: TypeAlias = Callable[[Sequence[JsonObject], JsonObject], Awaitable[str]]
"""Takes messages and sampling parameters, returns the answer of a judge."""
_ALIVE_SECONDS = 5.0


class ScoringRun:
    """Contract: ``ScoringContext``. One per try of a scorer; ``close`` ends what it took.

    Args:
        task: with its grading.
        trajectory: as stored.
        result: what the agent returned.
        artifacts: files that the agent left; None: the task declares none.
        take_box: returns fresh boxes; None: there are none here.
        ask_judge: calls a judge; None: there is no gateway here.
    """

    def __init__(
        self,
        task: Task,
        trajectory: Trajectory,
        result: object,
        *,
        artifacts: Snapshot | None = None,
        take_box: TakeBox | None = None,
        ask_judge: AskJudge | None = None,
    ) -> None:
        self.task = task
        self.trajectory = trajectory
        self.result = result
        self.artifacts = artifacts
        self._take_box = take_box
        self._ask_judge = ask_judge
        self._log = BoxLog()

    @property
    def lost(self) -> str | None:
        """Why a box was lost; None: none was. Then nothing that the scorer answers is a judgement."""
        return self._log.lost

    @property
    def exec_seconds(self) -> float:
        """Wall time of commands in its boxes, summed."""
        return self._log.exec_seconds

    @property
    def num_boxes(self) -> int:
        """Boxes that it took."""
        return len(self._log.boxes)

    async def sandbox(self, spec: SandboxSpec | None = None) -> Sandbox:
        """Return a fresh box.

        Raises:
            BadInputError: no box can be made of this spec, or none is to be had here.
            SandboxError: the machine could not make one, or not in time.
        """
        if self._take_box is None:
            raise BadInputError(
                f"scorer of task {self.task.id!r}: it asks for a sandbox, and none is to be had here; run it in a"
                " worker, or with 'agent-layer rescore'"
            )
        with self._log.note_losses():
            return ScoringBox(await self._take_box(spec or self.task.sandbox), self._log)

    async def ask(self, messages: Sequence[JsonObject], **sampling: object) -> str:
        """Return a judge's answer.

        Raises:
            BadInputError: no gateway is configured.
            ModelCallError: the gateway refused the call. UnreachableError: it does not answer.
        """
        if self._ask_judge is None:
            raise BadInputError(
                f"scorer of task {self.task.id!r}: it asks a judge, and no gateway is configured; set"
                " AGENT_LAYER_GATEWAY_URL"
            )
        return await self._ask_judge(messages, sampling)

    async def was_commanding(self, deadline: float | None) -> bool:
        """Whether a command ran at its deadline, by the loop's clock, in a box that still answers."""
        if self._log.cut is None or deadline is None or self._log.cut[1] < deadline:  # by the scorer, before
            return False
        with suppress(TimeoutError, AgentLayerError):
            async with asyncio.timeout(_ALIVE_SECONDS):
                return await self._log.cut[0].is_alive()
        return False

    async def close(self) -> None:
        """End its boxes. A box that cannot be ended is its pool's to end."""
        await asyncio.gather(*(box.close() for box in self._log.boxes), return_exceptions=True)
