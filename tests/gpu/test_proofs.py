"""What a GPU changes, proved on one: ``pytest tests/gpu``. Each proof prints figures and verdicts.

Figures are those of 'agent-layer verify-cluster' (``trainer_adapter/evidence``). Without a GPU the same runs with tiny
models on the CPU, and what only a GPU can show is left out. torch and veRL take seconds to import, so they are imported
inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import msgspec
import pytest

from trainer_adapter.algorithms import AlgorithmConfig, Schedule, resolve_algorithm
from trainer_adapter.config import OptimizerConfig, SourceConfig, TrainConfig
from trainer_adapter.evidence.collect import list_requests
from trainer_adapter.evidence.records import Buckets, Fault, RatioTails, Update

from ..job.hand_case import DECOUPLED, NO_WEIGHTS, expected_update, make_batch
from ..job.plain_losses import LOSSES

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch and veRL warn of each other
    pytest.mark.timeout(900),
    pytest.mark.long,
]

MAX_RATIO = {("float32", "float32"): 1e-4, ("float32", "bfloat16"): 0.2, ("bfloat16", "bfloat16"): 0.2}
"""Largest |log ratio| of a token, by precision of trainer and engine: in float32 on one device there is none."""


def configure(model, precision="float32", loss="vanilla", tokens=16384):
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=2,
        algorithm=AlgorithmConfig(loss=loss, correction=NO_WEIGHTS if loss == "geo_mean" else DECOUPLED),
        optimizer=OptimizerConfig(learning_rate=Schedule(start=0.0), microbatch_tokens=tokens, precision=precision),
    )


def test_hand_case(has_gpu, report, model):
    """Loss and gradient norm are those of plain autograd on a CPU, whatever loss and micro-batches are."""
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl import EmbeddedTrainer

    reader = AutoModelForCausalLM.from_pretrained(model).eval()
    worst = dict[str, float]()
    for precision in ("float32", "bfloat16"):
        for loss in LOSSES:
            expected, norm = expected_update(reader, resolve_algorithm(configure(model, loss=loss).algorithm))
            for tokens in (1, 12, 16384):
                found = EmbeddedTrainer(configure(model, precision, loss, tokens)).update(make_batch(), 0, 1).metrics
                gaps = (abs(found["actor/pg_loss"] - expected), abs(found["grad_norm"] - norm) / norm)
                worst[precision] = max(worst.get(precision, 0.0), *gaps)

    report(f"float32 differs by {worst['float32']:.1e} from autograd on a CPU", "1e-5", worst["float32"] < 1e-5)
    report(f"bfloat16 differs by {worst['bfloat16']:.1e}", "1e-2", worst["bfloat16"] < 1e-2)
    device = EmbeddedTrainer(configure(model))._module.lm_head.weight.device.type
    report(f"the model is on {device}", "a GPU where there is one", (device == "cuda") == has_gpu)


def test_everything_is_measured(evidence, report, tmp_path):
    faults = [f"{one.what}: {one.why}" for one in evidence.found if isinstance(one, Fault)]
    cases = [one.case for one in list_requests(tmp_path, is_rehearsal=evidence.is_rehearsal) if one.has_updates]
    found = {(one.case, one.row_length) for one in evidence.found if isinstance(one, Update)}
    wanted = {(case.name, length) for case in cases for length in case.row_lengths}

    report(
        f"{len(found)} updates, not measured: {'; '.join(faults) or 'nothing'}", "all", not faults and found == wanted
    )


def test_updates(evidence, report):
    """An update changes weights, takes about the memory of the dry run, and no more FLOPs than the GPU has."""
    for one in (one for one in evidence.found if isinstance(one, Update)):
        figure = (
            f"{one.case}, rows of {one.row_length:,} tokens: {one.tokens_per_second:,.0f} tokens/s, {one.mfu:.1%} MFU"
        )
        report(figure, "a gradient", one.grad_norm > 0)
        if one.peak_bytes is not None:
            expected = one.expected.peak_bytes
            peak = f"peak {one.peak_bytes / 1e9:.1f} GB, arithmetic {expected / 1e9:.1f} GB"
            report(f"{figure}, {peak}", "within a quarter", abs(one.peak_bytes / expected - 1) < 0.25)
            report(figure, "an MFU below 1", one.mfu < 1)


def test_ratios(evidence, report):
    """What an engine of another precision makes of ratios; in float32 on one device it makes nothing."""
    tails = [one for one in evidence.found if isinstance(one, RatioTails)]
    for one in tails:
        most = MAX_RATIO[one.trainer, one.engine]
        figure = f"{one.trainer} trainer, {one.engine} engine: |log ratio| mean {one.mean:.1e}, p99.9 {one.p999:.1e}"
        report(f"{figure}, largest {one.largest:.1e}", f"{most:g}", one.largest < most)
    assert {(one.trainer, one.engine) for one in tails} == set(MAX_RATIO)


def test_buckets(evidence, report):
    """Weights arrive whole in another process, through veRL's buckets."""
    for one in (one for one in evidence.found if isinstance(one, Buckets)):
        figure = f"{one.case}: {one.num_bytes / 1e9:.3f} GB in {one.seconds:.2f} s"
        report(figure, "the same checksum at both ends", one.is_equal)
        report(figure, f"{one.expected_bytes:,} bytes", one.num_bytes == one.expected_bytes)


def test_weights_in_files(report, model, tmp_path):
    """Weights of the trainer are those of the files that engines load."""
    from safetensors.torch import load_file

    from agent_layer.schema.training import CheckpointRef
    from trainer_adapter.evidence.buckets import WeightsChecksum
    from trainer_adapter.verl import EmbeddedTrainer
    from trainer_adapter.verl.weights import write_weights

    trainer, own, read = EmbeddedTrainer(configure(model)), WeightsChecksum(), WeightsChecksum()
    list(own.watch(trainer.weights()))
    origin = CheckpointRef(run="r", step=1)
    write_weights(tmp_path / "version", trainer.published_weights(), model, "float32", origin)
    list(read.watch(load_file(tmp_path / "version" / "model.safetensors").items()))
    report(f"{own.num_bytes:,} bytes in safetensors", "the same checksum", own.value == read.value)


def test_figures_survive_their_file(evidence):
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=type(evidence)) == evidence
