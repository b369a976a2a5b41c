"""Real boxes for scorers: of kind namespace where it works, in one pool per module."""

import pytest
import pytest_asyncio

from agent_layer.schema import RewardSpec, Task, Trajectory
from envs.grading import ScoringRun
from envs.grading.prepared_box import archive_files
from envs.sandbox import Resources, SandboxSpec, open_pool
from envs.scorers import run_scorer

from ...boxes import require_kind
from ...waiting import scaled

SPEC = SandboxSpec(kind="namespace", resources=Resources(memory_mb=256, disk_mb=32, processes=64, files=512))


def mark_long(names, *often):
    """Return these as parameters; ``make test`` runs only those that are named behind them."""
    return [name if name in often else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool():
    require_kind("namespace")
    async with open_pool() as opened:
        yield opened


@pytest.fixture
def judge(pool):
    """``await judge(scorer, grading, files)``: the rewards of an attempt that left these files."""

    async def judge(
        scorer, grading, files=None, *, take_box=None, result=None, own_files=None, seconds=None, artifacts=(".",)
    ):
        async def take(spec):
            return await pool.take(spec, owner="test")

        task = Task(
            id="t",
            run="r",
            grading=grading,
            sandbox=SPEC,
            files=own_files or {},
            rewards={"right": RewardSpec()},
            artifacts=list(artifacts),
        )
        run = ScoringRun(
            task,
            Trajectory(trajectory_id="t-0"),
            result,
            artifacts=archive_files(files) if isinstance(files, dict) else files,
            take_box=take_box or take,
        )
        (reward,) = await run_scorer(scorer, run, seconds or scaled(100))
        return reward

    return judge
