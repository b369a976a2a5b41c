"""veRL's batch: the one place where samples become tensors.

Prompts are padded on the left, responses on the right, so that column ``num_prompt`` is the first response token of
every row. ``response_mask`` is the samples' loss mask: a token that is 0 there is context and is not trained.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from tensordict import TensorDict
from torch import Tensor

from agent_layer.schema import Advantages, Logprobs, TokenIds
from trainer_adapter.algorithms import DistillConfig, ResolvedAlgorithm
from trainer_adapter.data import TokenColumns, TrainingBatch, list_calls, spread_advantages

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL and tensordict carry no types.

TEACHER = "teacher_log_probs"
"""[num_rows, num_response_tokens] of the teacher; only with ``algorithm.distill``."""


class TokenRow(Protocol):
    """Token ids of one row, and which of them are trained; see ``TrainingSample``."""

    @property
    def prompt_ids(self) -> TokenIds:
        """[num_prompt_tokens]."""
        ...

    @property
    def response_ids(self) -> TokenIds:
        """[num_response_tokens]."""
        ...

    @property
    def loss_mask(self) -> TokenIds:
        """[num_response_tokens]."""
        ...


def pack_batch(batch: TrainingBatch, algorithm: ResolvedAlgorithm) -> TensorDict:
    """Return tensors with veRL's names, one row per sample, advantages included."""
    samples = batch.samples
    tokens = pack_tokens(samples)
    teacher: dict[str, Tensor] = {}
    if algorithm.distill is not None:
        rows = [torch.tensor(found) for _, found in zip(samples, batch.teacher_logprobs, strict=True)]
        teacher = {TEACHER: _stack(rows, pad=0.0, side="right")}
    return TensorDict(
        {
            **tokens,
            "rollout_log_probs": _stack([torch.tensor(sample.logprobs) for sample in samples], pad=0.0, side="right"),
            "versions": _stack([torch.tensor(sample.versions) for sample in samples], pad=-1, side="right"),
            "temperature": torch.tensor([sample.temperature or 1.0 for sample in samples]),
            "advantages": _stack(
                [torch.tensor(row) for row in spread_advantages(batch, algorithm)], pad=0.0, side="right"
            ),
            "rollout": torch.tensor(batch.rollout_of),
            "row": torch.arange(len(samples)),
            **teacher,
        },
        batch_size=len(samples),
    )


def pack_tokens(rows: Sequence[TokenRow]) -> dict[str, Tensor]:
    """Return the token ids of rows with their masks, by veRL's names: [num_rows, …]."""
    prompts = _stack([torch.tensor(row.prompt_ids) for row in rows], pad=0, side="left")
    responses = _stack([torch.tensor(row.response_ids) for row in rows], pad=0, side="right")
    attention_mask = torch.cat([_presence(rows, "prompt"), _presence(rows, "response")], dim=1)
    return {
        "prompts": prompts.long(),
        "responses": responses.long(),
        "input_ids": torch.cat([prompts, responses], dim=1).long(),
        "attention_mask": attention_mask,
        "position_ids": (attention_mask.cumsum(dim=1) - 1).clamp(min=0),
        "response_mask": _stack([torch.tensor(row.loss_mask) for row in rows], pad=0, side="right"),
    }


def add_teacher(data: TensorDict, distill: DistillConfig) -> float:
    """Add the teacher's part to the advantages; return the mean reverse KL divergence of the policy from the teacher.

    Of token t with the tokens s_t before it, coefficient x (log p_teacher(t | s_t) - log p(t | s_t)) is added, p that
    of the weights before the update. It is a constant to the gradient, and later tokens of the row do not count in it
    (discount 0): the gradient is that of the reverse KL divergence of each token's distribution at the states that the
    policy visits (Agarwal et al. 2024, arXiv 2306.13649; Thinking Machines 2025, "On-Policy Distillation").

    Args:
        data: with ``present`` log-probabilities; its advantages change.
        distill: the coefficient.
    """
    mask = data["response_mask"].bool()
    gain = torch.where(mask, data[TEACHER] - data["present"], 0.0)
    data["advantages"] = data["advantages"] + distill.coefficient * gain
    return -float(gain[mask].mean())


class LogprobGap(NamedTuple):
    """|trainer - engine| log-probability over tokens that the present weights sampled."""

    largest: float
    mean: float


def measure_logprob_gap(data: TensorDict, version: int) -> LogprobGap | None:
    """Return how much log-probabilities differ between trainer and engine, over tokens of this version.

    Returns: None without such tokens.
    """
    is_own = data["versions"] == version
    gaps = (data["old_log_probs"] - data["rollout_log_probs"]).abs()[is_own]
    return LogprobGap(float(gaps.max()), float(gaps.mean())) if gaps.numel() else None


def read_columns(
    batch: TrainingBatch, logprobs: Tensor, advantages: Tensor, trained: Tensor, teacher: Tensor | None = None
) -> list[TokenColumns]:
    """Return [num_rollouts] what an update computed for the tokens of each rollout.

    Args:
        batch: whose rows these are.
        logprobs: [num_rows, num_response_tokens].
        advantages: of the same shape.
        trained: of the same shape; whether the loss had the token.
        teacher: of the same shape; None: no teacher.
    """
    spans: list[list[tuple[int, int, int]]] = [[] for _ in batch.rewards]
    for row, (position, sample) in enumerate(zip(batch.rollout_of, batch.samples, strict=True)):
        spans[position] += [(row, step.start, step.start + step.num_tokens) for step in sample.steps]

    def join(values: Tensor, places: Sequence[tuple[int, int, int]], kind: torch.dtype) -> bytes:
        parts = [values[row, start:end] for row, start, end in places]
        return torch.cat(parts).to(kind).numpy().tobytes() if parts else b""

    return [
        TokenColumns(
            calls=calls,
            logprobs=Logprobs(join(logprobs, places, torch.float32)),
            advantages=Advantages(join(advantages, places, torch.float32)),
            mask=join(trained, places, torch.uint8),
            teacher_logprobs=None if teacher is None else Logprobs(join(teacher, places, torch.float32)),
        )
        for calls, places in zip(list_calls(batch), spans, strict=True)
    ]


def _stack(rows: Sequence[Tensor], *, pad: float, side: str) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=pad, padding_side=side)


def _presence(samples: Sequence[TokenRow], part: str) -> Tensor:
    is_prompt = part == "prompt"
    ones = [torch.ones(len(one.prompt_ids if is_prompt else one.response_ids), dtype=torch.long) for one in samples]
    return _stack(ones, pad=0, side="left" if is_prompt else "right")
