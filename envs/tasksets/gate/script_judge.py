"""Judges scripts without an agent: what a script leaves behind goes to the scorer as an agent's artifacts would."""

import io
import tarfile
import time
from collections.abc import Sequence

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Action, JsonObject, Reward, Step, Task, Trajectory, rollout_reward
from agent_layer.schema.sandbox import Sandbox, SandboxSpec, Snapshot
from envs.grading import ScoringRun
from envs.sandbox import SandboxPool
from envs.scorers import declared_rewards, load_scorer, run_scorer
from envs.script import Script
from envs.tasksets.harbor import leave_artifacts

_SECONDS = 300.0
"""Limit as in the setting ``score_seconds``, so that slow cheats end here as they would in a worker."""
_TRAJECTORY = "check"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one script."""

    reward: float | None
    """Reward of the rollout; None: the scorer has no judgement."""
    status: str
    evidence: str
    """Evidence for people."""
    seconds: float = 0.0
    """Wall time of the scorer."""


def can_judge(task: Task) -> bool:
    """Whether the task names a scorer that runs outside of its agent."""
    return task.scorer is not None and load_scorer(task.scorer) is not None


class ScriptJudge:
    """Runs the scorers of tasks over scripts, in boxes of one pool."""

    def __init__(self, pool: SandboxPool) -> None:
        self._pool = pool

    async def judge(self, task: Task, script: Script) -> Judgement:
        """Return what the task's scorer makes of a script.

        Raises: BadInputError: the task names no scorer that runs outside of its agent.
        """
        scorer = None if task.scorer is None else load_scorer(task.scorer)
        if scorer is None:
            raise BadInputError(
                f"task {task.id!r}: expected a scorer that runs outside of the agent, found {task.scorer!r}; name one"
            )

        async def take_box(spec: SandboxSpec | None) -> Sandbox:
            return await self._pool.take(spec or SandboxSpec(), owner=f"check of {task.id}")

        run = ScoringRun(
            task,
            _make_trajectory(script.replies),
            script.result,
            artifacts=await self._take_artifacts(task, script) if task.artifacts else None,
            take_box=take_box,
        )
        began = time.monotonic()
        rewards = await run_scorer(scorer, run, task.limits.score_seconds or _SECONDS)
        return Judgement(
            reward=rollout_reward(declared_rewards(task, scorer), rewards, None),
            status=next((one.status for one in rewards if one.status not in ("ok", "missing")), "ok"),
            evidence=_describe(rewards),
            seconds=time.monotonic() - began,
        )

    async def _take_artifacts(self, task: Task, script: Script) -> Snapshot | None:
        """Return what the script leaves: what its commands do in a box, or its files."""
        if not script.commands:
            return _take_files(task, script)
        box = await self._pool.take(task.sandbox or SandboxSpec(), owner=f"check of {task.id}")
        try:
            return await leave_artifacts(box, task, script)
        finally:
            await box.close()


def _describe(rewards: Sequence[Reward]) -> str:
    return "; ".join(
        text for one in rewards for text in (one.error if one.status != "missing" else "", one.comment) if text
    )


def _make_trajectory(replies: Sequence[JsonObject]) -> Trajectory:
    steps = [
        Step(
            trajectory_id=_TRAJECTORY,
            call_id=f"call-{index}",
            choice=0,
            run=_TRAJECTORY,
            started_at=0.0,
            index=index,
            action=Action(message=reply),
        )
        for index, reply in enumerate(replies)
    ]
    return Trajectory(trajectory_id=_TRAJECTORY, steps=steps)


def _take_files(task: Task, script: Script) -> Snapshot:
    """Return the declared ones of the files that a script leaves; those in a declared folder too."""
    left: dict[str, str | None] = {**task.files, **script.files}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(left.keys() | script.links.keys()):
            if not any(name == one or name.startswith(f"{one.rstrip('/')}/") for one in task.artifacts):
                continue
            entry = tarfile.TarInfo(name)
            if name in script.links:
                entry.type, entry.linkname = tarfile.SYMTYPE, script.links[name]
                archive.addfile(entry)
            elif (text := left[name]) is not None:
                content = text.encode()
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
    return Snapshot(archive=out.getvalue())
