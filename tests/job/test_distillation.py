"""On-policy distillation: the update of a hand-made batch, a run with a teacher, and a real vLLM as the teacher.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import msgspec
import pytest

from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.local.vllm import VllmServer
from agent_layer.store import open_store
from agent_layer.store.consumers.trained_batches import list_batches
from trainer_adapter.algorithms import AlgorithmConfig, DistillConfig, Schedule, resolve_algorithm
from trainer_adapter.algorithms.options import TeacherConfig
from trainer_adapter.config import OptimizerConfig, SourceConfig, TrainConfig
from trainer_adapter.data.advantages import select_batch
from trainer_adapter.data.replay import rebuild_batch
from trainer_adapter.teacher import judge_group, open_teacher

from ..teaching import ScriptedTeacher, judge
from ..waiting import scaled
from .conftest import MADE_UP, RUN, train
from .hand_case import (
    BYPASS,
    DECOUPLED,
    ROLLOUTS,
    compute_advantages,
    compute_logprobs,
    expected_update,
    make_taught_batch,
    make_teacher,
    read_groups,
)
from .plain_losses import LOSSES

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, ray and veRL warn of each other

ANY = TeacherConfig(url="http://127.0.0.1:1", model="teacher")


def configure_update(model, distill, **fields):
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=1,
        algorithm=AlgorithmConfig(distill=distill, **fields),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=0.0), microbatch_tokens=12),
    )


@pytest.fixture(scope="module")
def reader(model):
    """The Hugging Face model with the trainer's first weights."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model).eval()


@pytest.mark.parametrize(
    ("loss", "replace_rewards", "correction"),
    [
        *((loss, False, DECOUPLED) for loss in LOSSES if loss != "geo_mean"),
        ("vanilla", False, BYPASS),
        ("reinforce", True, DECOUPLED),
    ],
)
def test_loss_and_gradient_with_a_teacher_are_those_of_plain_autograd(model, reader, loss, replace_rewards, correction):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    distill = DistillConfig(teacher=ANY, coefficient=0.7, replace_rewards=replace_rewards)
    config = configure_update(model, distill, loss=loss, correction=correction)
    expected, norm = expected_update(reader, resolve_algorithm(config.algorithm))

    report = EmbeddedTrainer(config).update(make_taught_batch(), 0, version=1)

    assert report.metrics["actor/pg_loss"] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert report.metrics["grad_norm"] == pytest.approx(norm, rel=1e-6, abs=1e-6)


def test_the_advantage_of_each_token_and_the_divergence_are_those_worked_out_by_hand(model, reader):
    import torch

    from trainer_adapter.verl.trainer import EmbeddedTrainer

    distill = DistillConfig(teacher=ANY, coefficient=0.7)
    batch = make_taught_batch()

    report = EmbeddedTrainer(configure_update(model, distill)).update(batch, 0, version=1)

    gains = []
    for columns, (advantage, rows) in zip(report.tokens, ROLLOUTS, strict=True):
        with torch.no_grad():
            present = compute_logprobs(reader, rows)
        gains.append(make_teacher(rows) - present)
        found = sorted(zip(columns.logprobs, columns.teacher_logprobs, columns.advantages, strict=True))
        expected = compute_advantages(advantage, rows, present, distill)
        worked_out = sorted(zip(present.tolist(), make_teacher(rows).tolist(), expected.tolist(), strict=True))
        for token, numbers in zip(found, worked_out, strict=True):
            assert token == pytest.approx(numbers, abs=1e-6)
    assert report.metrics["reverse_kl"] == pytest.approx(-torch.cat(gains).mean().item(), abs=1e-6)


@pytest.mark.usefixtures("engine")
def test_a_run_with_a_teacher_keeps_its_numbers_and_leaves_out_what_it_did_not_answer(
    configure, settings, player, model
):
    player.equal = True  # so that only the teacher teaches
    store = open_store(settings)

    with serve_in_thread(ScriptedTeacher(model)) as server:
        server.refuses = lambda row: 400 if row == [3, 14] else None  # the third rollout of each group
        distill = DistillConfig(teacher=TeacherConfig(url=server.url, model="teacher"), coefficient=0.5)
        config = msgspec.structs.replace(
            configure(2, health=MADE_UP | {"untrainable": "off"}), algorithm=AlgorithmConfig(distill=distill)
        )
        reports = train(config, settings)

    assert [one.untrainable for one in reports] == [{"no_teacher": 2}] * 2
    assert [(one.policy_version, one.num_samples, one.num_dead_groups) for one in reports] == [(1, 4, 0), (2, 4, 0)]
    replays = [rebuild_batch(record, store.get) for record in list_batches(store.redis, store.keys, RUN)]
    assert [(one.differences, one.has_tokens) for one in replays] == [([], True)] * 2
    for report, replayed in zip(reports, replays, strict=True):
        trained = [store.get(one.trajectory_id).trained[0] for one in replayed.record.rollouts]
        gains = []
        for one in trained:
            (target,) = one.teacher_logprobs
            assert target in (pytest.approx(judge([3], 12)), pytest.approx(judge([3], 13)))
            gains.append(target - one.logprobs[0])
            assert one.advantages[0] == pytest.approx(0.5 * gains[-1], abs=1e-6)
        assert report.metrics["reverse_kl"] == pytest.approx(-sum(gains) / len(gains), abs=1e-6)
        assert report.metrics["teacher_seconds"] > 0
    names = {row.trajectory_id for row in store.query(run=RUN, finding="no_teacher").items}
    assert len(names) == 4
    tokens = store.step_tokens(store.get(replays[0].record.rollouts[0].trajectory_id), 0)
    assert len(tokens.teacher_logprobs) == 1


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """Another model with the same vocabulary."""
    from trainer_adapter.demo.model import write_model

    directory = tmp_path_factory.mktemp("other")
    write_model(directory, seed=1)
    return directory


@pytest.fixture(scope="module")
def vllm(model, tmp_path_factory):
    """A real vLLM that serves the tiny model as the teacher."""
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with VllmServer(model=model, log=log, name="teacher", max_model_len=64, start_seconds=scaled(300)) as server:
        yield TeacherConfig(url=f"{server.url}/v1", model="teacher")


def taught_by(vllm, model, settings):
    """The hand-made groups with what vLLM answered; two temperatures in a chain are more than a teacher has."""
    teacher = open_teacher(configure_update(model, DistillConfig(teacher=vllm)), settings)
    groups = [judge_group(group, teacher.score) for group in read_groups()]
    assert [one.kind for group in groups for one in group.excluded] == ["teacher_temperature"]
    return select_batch([group.samples for group in groups], keep_equal=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_policy_does_not_diverge_from_itself_as_its_teacher(vllm, model, settings):
    from trainer_adapter.verl.trainer import EmbeddedTrainer

    batch = taught_by(vllm, model, settings)
    assert len(batch.samples) > len(batch.rewards), "with a fork"

    report = EmbeddedTrainer(configure_update(model, DistillConfig(teacher=vllm))).update(batch, 0, version=1)

    assert report.metrics["reverse_kl"] == pytest.approx(0, abs=1e-4)
    for one in report.tokens:
        assert list(one.teacher_logprobs) == pytest.approx(list(one.logprobs), abs=1e-4)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_another_teachers_numbers_are_those_of_transformers(vllm, reader, other_model, settings):
    import torch
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl.trainer import EmbeddedTrainer

    batch = taught_by(vllm, other_model, settings)
    student = AutoModelForCausalLM.from_pretrained(other_model).eval()

    report = EmbeddedTrainer(configure_update(other_model, DistillConfig(teacher=vllm))).update(batch, 0, version=1)

    gains = []
    for sample, found in zip(batch.samples, batch.teacher_logprobs, strict=True):
        rows = [(list(sample.prompt_ids), list(sample.response_ids), list(sample.loss_mask), 1.0)]
        with torch.no_grad():
            expected, own = compute_logprobs(reader, rows), compute_logprobs(student, rows)
        mask = torch.tensor(rows[0][2]).bool()
        assert torch.tensor(found)[mask].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
        assert torch.tensor(found)[~mask].tolist() == [0.0] * int((~mask).sum())
        gains.append(expected - own)
    divergence = -torch.cat(gains).mean().item()
    assert abs(divergence) > 1e-2, "they are different models"
    assert report.metrics["reverse_kl"] == pytest.approx(divergence, abs=1e-4)
