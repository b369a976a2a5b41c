"""A run that learned from a bad task is trained again from its last clean checkpoint, on real parts."""

import os
import subprocess
import sys

import msgspec
import pytest

from agent_layer.engines.policies import get_policy
from agent_layer.store import open_store
from trainer_adapter.config import RetentionConfig, write_config
from trainer_adapter.lineage import walk_lineage

from ..waiting import communicate
from .conftest import RUN, train

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.long,
]


def test_the_new_run_goes_on_from_the_clean_checkpoint_and_never_draws_the_bad_task(
    configure, settings, player, engine, register_engine
):
    kept = RetentionConfig(checkpoint_steps=1, num_checkpoints=9)
    first = msgspec.structs.replace(configure(5, max_staleness=0), keep=kept)
    train(first, settings)
    register_engine(engine, settings, run="n", location=str(first.model))
    player.starts.clear()
    config = settings.dir / "run.json"
    write_config(configure(6, max_staleness=1), config)
    bad = ["--task", "b", "--policy", "2..", "--run", RUN]
    command = [sys.executable, "-m", "agent_layer.cli", "recall", *bad, "--retrain", "--as", "n", "--config", config]

    started = subprocess.Popen(
        command, env=os.environ | settings.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    out, _ = communicate(started, 300)

    assert started.returncode == 0, out
    store = open_store(settings)
    lineage = list(walk_lineage(store, "n"))
    assert [(one.run, one.step) for one in lineage] == [*(("n", step) for step in (6, 5, 4, 3)), (RUN, 2), (RUN, 1)]
    assert all(one.num_tokens == sum(rollout.num_tokens for rollout in one.rollouts) == 6 for one in lineage)
    rows = list(store.scan(run="n"))
    assert {row.task_id for row in rows} == {"a"}
    assert min(row.policy_min for row in rows) == min(start for start in player.starts.values()) == 1
    assert (get_policy(store.redis, store.keys, "n", 0).parent.step, lineage[3].policy_version) == (2, 1)
