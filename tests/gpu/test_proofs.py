"""What a GPU changes, proved on one: ``pytest tests/gpu``. Each proof prints figures and verdicts.

Without a GPU the same assertions run with small sizes on the CPU. vLLM is only needed for the last; the others play
the engine with Hugging Face's model, or with a process that receives veRL's buckets.

torch and veRL take seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import asyncio
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from shutil import copy2

import msgspec
import pytest

from agent_layer.health.progress import progress_path, read_progress
from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.training import CheckpointRef, TrainingSample
from trainer_adapter.algorithms import AlgorithmConfig, Schedule, resolve_algorithm
from trainer_adapter.config import OptimizerConfig, SourceConfig, TrainConfig
from trainer_adapter.data.advantages import GroupSamples, RolloutSamples, select_batch
from trainer_adapter.start.memory import ModelShape, estimate_memory, read_shape

from ..job import ray_runs
from ..job.hand_case import DECOUPLED, NO_WEIGHTS, expected_update, make_batch
from ..job.plain_losses import LOSSES
from ..waiting import communicate

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(900),
    pytest.mark.long,
]

PEAK_TFLOPS = 790
"""Of an H100 or H200 in bfloat16, dense, as measured by large matrix products."""
SHAPES = {
    "1.5B": ModelShape(
        vocab_size=151_936,
        hidden_size=1_536,
        intermediate_size=8_960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    ),
    "7B": ModelShape(
        vocab_size=152_064,
        hidden_size=3_584,
        intermediate_size=18_944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
    ),
}
"""Those of Qwen2.5."""
NUM_WORDS = 20
"""That the tiny model has, too."""


def configure(model, precision="float32", loss="vanilla", tokens=16384, rate=0.0, **optimizer):
    return TrainConfig(
        model=model,
        tasks=[SourceConfig(path=model / "none.jsonl")],
        steps=2,
        algorithm=AlgorithmConfig(loss=loss, correction=NO_WEIGHTS if loss == "geo_mean" else DECOUPLED),
        optimizer=OptimizerConfig(
            learning_rate=Schedule(start=rate), microbatch_tokens=tokens, precision=precision, **optimizer
        ),
    )


def make_pairs(rows):
    """Pairs of rollouts, one of each with reward 1: (response ids, engine's log-probabilities) for each."""
    groups = []
    for number in range(0, len(rows), 2):
        rollouts = []
        for member, (ids, logprobs) in enumerate(rows[number : number + 2]):
            name = f"{number}.{member}-0"
            sample = TrainingSample(
                sample_id=f"{name}.0",
                trajectory_id=name,
                run="r",
                task_id="q",
                prompt_ids=TokenIds([3, 12]),
                response_ids=TokenIds(ids),
                loss_mask=[1] * len(ids),
                logprobs=Logprobs(logprobs),
                versions=[0] * len(ids),
                temperature=1.0,
            )
            rollouts.append(RolloutSamples(trajectory_id=name, reward=float(member), samples=[sample]))
        groups.append(GroupSamples(group_id=str(number), task_id="q", rollouts=rollouts))
    return select_batch(groups, keep_equal=False)


def random_rows(num_rows, num_tokens, num_words):
    import torch

    order = torch.Generator().manual_seed(0)
    return [torch.randint(num_words, (num_tokens,), generator=order).tolist() for _ in range(num_rows)]


def test_hand_case(machine, report, model):
    """Loss and gradient norm are those of plain autograd on a CPU, whatever loss and micro-batches are."""
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl import EmbeddedTrainer

    reader = AutoModelForCausalLM.from_pretrained(model).eval()
    worst = dict[str, float]()
    for precision in ("float32", "bfloat16"):
        for loss in LOSSES:
            expected, norm = expected_update(reader, resolve_algorithm(configure(model, loss=loss).algorithm))
            for tokens in (1, 12, 16384):
                config = configure(model, precision, loss, tokens)
                found = EmbeddedTrainer(config).update(make_batch(), 0, version=1).metrics
                gaps = (abs(found["actor/pg_loss"] - expected), abs(found["grad_norm"] - norm) / norm)
                worst[precision] = max(worst.get(precision, 0.0), *gaps)

    report(f"float32 differs by {worst['float32']:.1e} from autograd on a CPU", "1e-5", worst["float32"] < 1e-5)
    report(f"bfloat16 differs by {worst['bfloat16']:.1e}", "1e-2", worst["bfloat16"] < 1e-2)
    assert EmbeddedTrainer(configure(model))._module.lm_head.weight.device.type == machine.device


@pytest.fixture
def write_model(model, tmp_path, machine):
    """``write_model("7B")``: random weights of this size, with the tiny model's tokenizer; the tiny model on a CPU."""

    def write_model(name):
        if not machine.is_gpu:
            return model
        import torch
        from transformers import AutoModelForCausalLM, Qwen2Config

        sizes = msgspec.structs.asdict(SHAPES[name])
        names = [one for one in sizes if one.startswith(("num_", "hidden", "inter", "vocab", "tie")) and sizes[one]]
        config = Qwen2Config(**{one: sizes[one] for one in names})
        with torch.device("cuda"):
            AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path / name)
        torch.cuda.empty_cache()
        for file in model.iterdir():
            if file.name.startswith(("tokenizer", "special", "chat")):
                copy2(file, tmp_path / name)
        return tmp_path / name

    return write_model


@pytest.mark.parametrize("size", list(SHAPES))
def test_one_step(machine, report, write_model, size):
    """Tokens each second, and peak memory against the arithmetic of the dry run."""
    import torch

    from trainer_adapter.verl import EmbeddedTrainer

    num_rows, num_tokens = (16, 1024) if machine.is_gpu else (16, 64)
    options = {"tokens": 8192, "rate": 1e-6, "gradient_checkpointing": True}
    needed = estimate_memory(configure(Path("m"), "bfloat16", **options), SHAPES[size]).peak_bytes
    if machine.is_gpu and needed > 0.95 * machine.num_bytes:
        pytest.skip(f"{size}: expected a GPU of {needed / 1e9:.0f} GB, found {machine.num_bytes / 1e9:.0f} GB")
    if not machine.is_gpu and size != next(iter(SHAPES)):
        pytest.skip("on a CPU the tiny model takes the place of all sizes")
    path = write_model(size)
    config = configure(path, "bfloat16", **options)
    shape = read_shape(path)
    batch = make_pairs([(ids, [-3.0] * num_tokens) for ids in random_rows(num_rows, num_tokens, NUM_WORDS)])
    trainer = EmbeddedTrainer(config)
    trainer.update(batch, 0, version=0)
    if machine.is_gpu:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    found = trainer.update(batch, 1, version=0)
    seconds = time.perf_counter() - began

    tokens = num_rows * (num_tokens + 2)
    flops = shape.num_parameters * tokens * (6 + 2 + 2)  # forward twice, backward, forward again for checkpoints
    speed = f"{tokens / seconds:,.0f} tokens/s, {flops / seconds / 1e12 / PEAK_TFLOPS:.1%} of {PEAK_TFLOPS} TFLOP/s"
    norm = found.metrics["grad_norm"]
    report(f"{size} parameters, {tokens:,} tokens padded: {speed}", "a step that changes weights", norm > 0)
    if machine.is_gpu:
        peak, expected = torch.cuda.max_memory_allocated(), estimate_memory(config, shape).peak_bytes
        gap = abs(peak / expected - 1)
        report(f"peak {peak / 1e9:.1f} GB, arithmetic {expected / 1e9:.1f} GB", "within a quarter", gap < 0.25)


@pytest.mark.parametrize(
    ("trained", "sampled", "most"),
    [("float32", "float32", 1e-4), ("float32", "bfloat16", 0.2), ("bfloat16", "bfloat16", 0.2)],
)
def test_off_policy_honesty(machine, report, model, trained, sampled, most):
    """What an engine of another precision makes of ratios; in one precision and on one device it makes nothing."""
    import torch
    from transformers import AutoModelForCausalLM

    from trainer_adapter.verl import EmbeddedTrainer

    num_rows, num_tokens = (32, 256) if machine.is_gpu else (16, 64)
    engine = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, sampled)).eval().to(machine.device)
    rows = []
    for ids in random_rows(num_rows, num_tokens, NUM_WORDS):
        with torch.no_grad():
            logits = engine(torch.tensor([[3, 12, *ids]], device=machine.device)).logits[0, 1:-1].float()
        rows.append(
            (ids, logits.log_softmax(-1).gather(-1, torch.tensor(ids, device=logits.device)[:, None])[:, 0].tolist())
        )

    found = EmbeddedTrainer(configure(model, trained)).update(make_pairs(rows), 0, version=0)

    gap, ratio = found.logprob_gap, found.metrics["ratio_gap"]
    assert gap
    figure = f"{trained} trainer, {sampled} engine: log-probabilities differ by {gap.mean:.1e} on average"
    report(f"{figure}; first minibatch: |ratio - 1| at most {ratio:.1e}", f"{most:g}", ratio < most)


def test_weight_switch(machine, report, write_model, tmp_path):
    """Weights arrive whole in another process: through veRL's buckets, and through a safetensors directory."""
    from safetensors.torch import load_file

    from trainer_adapter.verl import EmbeddedTrainer
    from trainer_adapter.verl.weights import write_weights

    from .buckets import WeightsHash, load_transfer

    path = write_model("1.5B")
    trainer = EmbeddedTrainer(configure(path))
    sent = WeightsHash()
    sent.add(trainer.weights())
    num_bytes = read_shape(path).num_parameters * 4
    handle = f"ipc://{tmp_path}/weights.sock"
    command = [sys.executable, str(Path(__file__).with_name("receiver.py")), handle, machine.device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        began = time.perf_counter()
        sender = load_transfer().BucketedWeightSender(handle, 2048 if machine.is_gpu else 4, use_shm=not machine.is_gpu)
        asyncio.run(sender.async_send_weights(trainer.weights()))
        seconds = time.perf_counter() - began
        received = communicate(receiver, 120)[0].split()[-1]
    speed = f"{num_bytes / 1e9:.3f} GB in {seconds:.1f} s, the start of the process and its hashing included"
    report(f"buckets: {speed}", "the same hash on both sides", received == sent.value)

    began = time.perf_counter()
    origin = CheckpointRef(run="r", step=1)
    write_weights(tmp_path / "version", trainer.published_weights(), path, "float32", origin)
    loaded = WeightsHash()
    loaded.add(load_file(tmp_path / "version" / "model.safetensors").items())
    seconds = time.perf_counter() - began
    report(f"safetensors: {num_bytes / 1e9:.3f} GB in {seconds:.1f} s", "the same hash", loaded.value == sent.value)


def test_main_ppo(report, tmp_path):
    """Stock main_ppo makes a step and a checkpoint, and goes on from it."""
    if missing := [name for name in ("ray", "vllm", "transfer_queue") if find_spec(name) is None]:
        pytest.skip(f"expected {', '.join(missing)}, which veRL starts, found none")
    config = ray_runs.configure(tmp_path, 1, checkpoint_steps=1)
    settings = ray_runs.train_on_ray(tmp_path, config)
    ray_runs.train_on_ray(tmp_path, msgspec.structs.replace(config, steps=2))

    steps = [
        (one.step, one.metrics["grad_norm"], one.metrics["logprob_gap"])
        for one in read_progress(progress_path(settings, ray_runs.RUN))
    ]
    gap = max(one[2] for one in steps)
    report(
        f"steps {[one[0] for one in steps]}, the second after a resume", "[1, 2]", [one[0] for one in steps] == [1, 2]
    )
    report(f"trainer and vLLM differ by {gap:.1e}", "0.05", gap < 0.05)
