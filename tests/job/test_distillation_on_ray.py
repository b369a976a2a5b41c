"""On-policy distillation on Ray: a teacher's log-probabilities reach veRL's workers with each row."""

import itertools
import subprocess
import sys

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.schema import TrainedBatch
from agent_layer.schema.record import Logprobs
from agent_layer.settings import Settings
from agent_layer.store import Store, open_store
from agent_layer.store.consumers import list_batches
from trainer_adapter.algorithms import DistillConfig, TeacherConfig
from trainer_adapter.data import TrainingBatch

from ..teaching import ScriptedTeacher, judge
from .ray_runs import RUN, configure, train_on_ray, trained_batches, update_of_embedded_driver

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

STEPS = 2


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Where the game was trained with a teacher, with forks."""
    home = tmp_path_factory.mktemp("ray")
    config = configure(home, STEPS)
    with serve_in_thread(ScriptedTeacher(home / "model")) as server:
        distill = DistillConfig(teacher=TeacherConfig(url=server.url, model="teacher"), coefficient=0.5)
        algorithm = msgspec.structs.replace(config.algorithm, distill=distill)
        return train_on_ray(home, msgspec.structs.replace(config, algorithm=algorithm))


def records(store: Store) -> list[TrainedBatch]:
    return list_batches(store.redis, store.keys, RUN)


def judge_rows(batch: TrainingBatch) -> list[list[float]]:
    """What the teacher says of each token of each response; 0 for tokens that are not trained."""
    return [
        [
            judge([*sample.prompt_ids, *sample.response_ids[:place]], token) if is_trained else 0.0
            for place, (token, is_trained) in enumerate(zip(sample.response_ids, sample.loss_mask, strict=True))
        ]
        for sample in batch.samples
    ]


def test_each_trained_token_has_what_the_teacher_says_of_it(settings: Settings):
    store = open_store(settings)

    for record, (_, batch) in zip(records(store), trained_batches(settings), strict=True):
        assert len(batch.samples) > len(batch.rewards), "with forks"
        judged = judge_rows(batch)
        for rollout, one in enumerate(record.rollouts):
            (kept,) = (found for found in store.get(one.trajectory_id).trained if found.batch_id == record.batch_id)
            rows = [row for row, owner in enumerate(batch.rollout_of) if owner == rollout]
            expected = [told for row in rows for told in itertools.compress(judged[row], batch.samples[row].loss_mask)]
            assert list(kept.teacher_logprobs) == pytest.approx(expected)


def test_the_divergence_of_each_step_is_that_of_what_was_stored(settings: Settings):
    store = open_store(settings)
    steps = read_progress(progress_path(settings, RUN))

    assert [(step.step, step.policy_version) for step in steps] == [(1, 1), (2, 2)]
    for step, record in zip(steps, records(store), strict=True):
        trained = [one for rollout in record.rollouts for one in store.get(rollout.trajectory_id).trained]
        own = [one for one in trained if one.batch_id == record.batch_id]
        gaps = [mine - told for one in own for mine, told in zip(one.logprobs, one.teacher_logprobs, strict=True)]
        assert step.metrics["reverse_kl"] == pytest.approx(sum(gaps) / len(gaps), rel=1e-5)
        assert step.metrics["teacher_seconds"] > 0


def test_the_first_step_is_that_of_one_process_without_ray(settings: Settings):
    _, batch = trained_batches(settings)[0]
    judged = [Logprobs(row) for row in judge_rows(batch)]

    found = update_of_embedded_driver(settings, msgspec.structs.replace(batch, teacher_logprobs=judged))

    metrics = read_progress(progress_path(settings, RUN))[0].metrics
    names = ("grad_norm", "loss", "actor/pg_loss", "actor/ppo_kl", "actor/entropy_loss", "reverse_kl")
    assert {name: metrics[name] for name in names} == pytest.approx(
        {name: found.metrics[name] for name in names}, rel=1e-5
    )


def test_what_was_trained_is_rebuilt_byte_for_byte(settings: Settings):
    program = [sys.executable, "-m", "agent_layer.cli", "--dir", str(settings.dir), "replay", "--run", RUN]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("identical") == STEPS
