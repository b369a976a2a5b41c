"""One process of torch, or one for each GPU: measures one case, and appends what it finds to a file.

``python -m trainer_adapter.evidence.measure REQUEST``, a ``Request`` as JSON; ``collect`` starts it, below torchrun
where several GPUs share the model.
"""

import gc
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from agent_layer.infra import append_line, quantile
from agent_layer.schema import Logprobs, StepRef, TokenIds, TrainingSample
from trainer_adapter.data import GroupSamples, RolloutSamples, TrainingBatch, select_batch
from trainer_adapter.evidence.buckets import send_weights
from trainer_adapter.evidence.cases import Case, count_bucket_bytes, count_rows, expect, make_config
from trainer_adapter.evidence.records import (
    Buckets,
    Fault,
    Heartbeat,
    Line,
    Machine,
    Measured,
    RatioTails,
    Request,
    Update,
)
from trainer_adapter.tiny_model import write_chat_model
from trainer_adapter.verl import EmbeddedTrainer, enter_platform

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# torch and transformers are partly untyped.

_PROMPT = [3, 12]
_TAIL_ROWS, _TAIL_TOKENS = 32, 256
_PRODUCT_SIZE = {"cuda": 8_192, "cpu": 512}
_PRODUCTS = 10
_PACKAGES = ("torch", "verl", "transformers", "tensordict", "flash-attn")


def measure(request: Request) -> Iterator[Measured]:
    """Yield what is found, as it is found. All processes below torchrun compute the same."""
    device = enter_platform()
    machine = _look_at_machine(device)
    yield machine
    case, model = request.case, Path(request.directory) / "model"
    yield Heartbeat(doing=f"{case.name}: writing random weights")
    if torch.distributed.get_node_local_rank() == 0:  # pyright: ignore[reportPrivateImportUsage]  # public in torch's manual
        _write_model(case, model, device)
    torch.distributed.barrier()
    yield Heartbeat(doing=f"{case.name}: loading them into veRL")
    trainer = EmbeddedTrainer(make_config(case, max(case.row_lengths), model, request.precision))
    for engine in request.engines:
        yield Heartbeat(doing=f"{case.name}: log-probabilities of an engine in {engine}")
        yield _compare_engine(trainer, request, engine, device)
    if request.has_updates:
        for length in case.row_lengths:
            yield Heartbeat(doing=f"{case.name}: an update of rows of {length:,} tokens")
            try:
                yield _measure_update(trainer, case, length, machine)
            except torch.OutOfMemoryError as error:
                yield Fault(what=f"{case.name}, rows of {length:,} tokens", why=str(error).split(". ")[0])
                gc.collect()
                torch.cuda.empty_cache()
        yield Heartbeat(doing=f"{case.name}: weights in buckets")
        yield _send(trainer, request, device)


def _look_at_machine(device: str) -> Machine:
    size = _PRODUCT_SIZE[device]
    first, second = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    multiply = partial(torch.matmul, first, second)
    multiply()
    _synchronize(device)
    began = time.perf_counter()
    for _ in range(_PRODUCTS):
        multiply()
    _synchronize(device)
    seconds = time.perf_counter() - began
    found = torch.cuda.get_device_properties(0) if device == "cuda" else None
    installed = {one.name.lower().replace("_", "-"): one.version for one in metadata.distributions()}
    return Machine(
        device=device,
        name=found.name if found else "CPU",
        num_ranks=torch.distributed.get_world_size(),
        gpu_bytes=found.total_memory if found else None,
        tflops=2 * size**3 * _PRODUCTS / seconds / 1e12,
        versions={name: installed.get(name, "none") for name in _PACKAGES}
        | {"Python": sys.version.split()[0], "CUDA": str(torch.version.cuda)},
    )


def _write_model(case: Case, directory: Path, device: str) -> None:
    """Write random weights of a shape, with the tokenizer of the tiny chat model, which stays unused."""
    write_chat_model(directory)
    for weights in directory.glob("*.safetensors"):
        weights.unlink()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = {name: getattr(case.shape, name) for name in (*names, "num_key_value_heads", "tie_word_embeddings")}
    config = Qwen2Config(**sizes, max_position_embeddings=max(case.row_lengths), eos_token_id=0, pad_token_id=0)
    torch.manual_seed(0)
    with torch.device(device):
        AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(directory)
    gc.collect()
    torch.cuda.empty_cache()


def _measure_update(trainer: EmbeddedTrainer, case: Case, length: int, machine: Machine) -> Update:
    device, num_ranks = machine.device, machine.num_ranks
    ids = _sample_ids(case, count_rows(case, length, num_ranks), length - len(_PROMPT))
    batch = _make_batch(ids, np.full(ids.shape, -np.log(case.shape.vocab_size), dtype=np.float32))
    trainer.update(batch, 0, version=0)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    _synchronize(device)
    began = time.perf_counter()
    found = trainer.update(batch, 1, version=0)
    _synchronize(device)
    seconds, expected = time.perf_counter() - began, expect(case, length, num_ranks)
    speed = len(ids) * length / seconds / num_ranks
    return Update(
        case=case.name,
        row_length=length,
        num_rows=len(ids),
        seconds=seconds,
        tokens_per_second=speed,
        mfu=speed * expected.flops_per_token / (machine.tflops * 1e12),
        peak_bytes=torch.cuda.max_memory_allocated() if device == "cuda" else None,
        grad_norm=found.metrics["grad_norm"],
        expected=expected,
    )


def _compare_engine(trainer: EmbeddedTrainer, request: Request, precision: str, device: str) -> RatioTails:
    """Let Hugging Face's model play the engine, update once, and compare log-probabilities of the same tokens."""
    case, model = request.case, Path(request.directory) / "model"
    ids = _sample_ids(case, _TAIL_ROWS * torch.distributed.get_world_size(), _TAIL_TOKENS)
    engine = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, precision)).eval().to(device)  # pyright: ignore[reportArgumentType]  # a device by name
    rows: list[np.ndarray] = []
    for row in ids:
        tokens = torch.tensor([[*_PROMPT, *row]], device=device)
        with torch.no_grad():
            scores = engine(tokens, use_cache=False).logits[0, len(_PROMPT) - 1 : -1].float().log_softmax(-1)
        rows.append(scores.gather(-1, tokens[0, len(_PROMPT) :, None])[:, 0].cpu().numpy())
    del engine
    sampled = np.stack(rows)
    found = trainer.update(_make_batch(ids, sampled), 0, version=0)
    trained = np.stack([np.frombuffer(bytes(one.logprobs), dtype=np.float32) for one in found.tokens])
    gaps = np.abs(trained - sampled).ravel().tolist()
    return RatioTails(
        case=case.name,
        trainer=request.precision,
        engine=precision,
        num_tokens=len(gaps),
        mean=float(np.mean(gaps)),
        p99=quantile(gaps, 0.99) or 0.0,
        p999=quantile(gaps, 0.999) or 0.0,
        largest=max(gaps),
    )


def _send(trainer: EmbeddedTrainer, request: Request, device: str) -> Measured:
    weights, case = trainer.weights(), request.case
    if torch.distributed.get_rank() > 0:  # each process has a part of every tensor
        for _ in weights:
            pass
        return Heartbeat(doing="")
    sent = send_weights(weights, device, Path(request.directory))
    return Buckets(
        case=case.name,
        num_bytes=sent.num_bytes,
        expected_bytes=count_bucket_bytes(case),
        seconds=sent.seconds,
        is_equal=sent.is_equal,
    )


def _sample_ids(case: Case, num_rows: int, num_tokens: int) -> np.ndarray:
    """Return [num_rows, num_tokens] any tokens: those of an untrained model have much the same probability."""
    return np.random.default_rng(0).integers(0, case.shape.vocab_size, (num_rows, num_tokens))


def _make_batch(ids: np.ndarray, logprobs: np.ndarray) -> TrainingBatch:
    """Return pairs of rollouts of one row each, one of each pair with reward 1.

    Args:
        ids: [num_rows, num_tokens] that were sampled.
        logprobs: of the same shape, the engine's.
    """
    groups: list[GroupSamples] = []
    for first in range(0, len(ids), 2):
        members = [_make_rollout(f"{row}-0", ids[row], logprobs[row], float(row - first)) for row in (first, first + 1)]
        groups.append(GroupSamples(group_id=str(first), task_id="q", rollouts=members))
    return select_batch(groups, keep_equal=False)


def _make_rollout(name: str, ids: Sequence[int], logprobs: np.ndarray, reward: float) -> RolloutSamples:
    length = len(ids)
    sample = TrainingSample(
        sample_id=f"{name}.0",
        trajectory_id=name,
        run="r",
        task_id="q",
        prompt_ids=TokenIds(_PROMPT),
        response_ids=TokenIds(ids),
        loss_mask=TokenIds([1] * length),
        logprobs=Logprobs(logprobs),
        versions=TokenIds([0] * length),
        temperature=1.0,
        steps=[StepRef(call_id=name, choice=0, start=0, num_tokens=length)],
    )
    return RolloutSamples(trajectory_id=name, reward=reward, samples=[sample])


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measure, and append to the file of results in the first process."""
    request = msgspec.json.decode(sys.argv[1], type=Request)
    for found in measure(request):
        if torch.distributed.get_rank() == 0:
            append_line(Path(request.results), Line(found=found))


if __name__ == "__main__":
    main()
