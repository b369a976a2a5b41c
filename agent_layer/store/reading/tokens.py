"""Sampled tokens of a step in columns: bytes, the engine's numbers, and what the last update computed for each."""

from itertools import accumulate

import msgspec

from agent_layer.schema import Advantages, Logprobs, Step, TokenIds, TrainedTokens, Trajectory
from agent_layer.state import TokenBytes


class StepTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that one step sampled."""

    token_ids: TokenIds
    """[num_tokens]."""
    texts: list[bytes | None]
    """[num_tokens] bytes of each token, which may be a part of a character; None: the vocabulary is not stored."""
    logprobs: Logprobs | None
    """[num_tokens], of the engine at sampling."""
    update: int | None = None
    """Number of the update that last learned from the step; None: none did, and the columns below are empty."""
    trained_logprobs: Logprobs = Logprobs()
    """[num_trained], of the trainer before that update, for the first tokens: the end of a long row may be cut off."""
    advantages: Advantages = Advantages()
    """[num_trained]."""
    mask: bytes = b""
    """[num_trained], 1 where the loss had the token."""
    teacher_logprobs: Logprobs | None = None
    """[num_trained], of the teacher of that update; None: it had none."""


def read_step_tokens(trajectory: Trajectory, step: Step, vocabulary: TokenBytes | None) -> StepTokens:
    """Return the sampled tokens of a step.

    Args:
        trajectory: of the step.
        step: one of its steps.
        vocabulary: of the step's tokenizer; None: not known.
    """
    token_ids = step.action.response_token_ids or TokenIds()
    tokens = StepTokens(
        token_ids=token_ids,
        texts=[vocabulary[token_id] if vocabulary else None for token_id in token_ids],
        logprobs=step.action.logprobs,
    )
    for trained in reversed(trajectory.trained):
        if place := _place(trained, step):
            return msgspec.structs.replace(
                tokens,
                update=trained.step,
                trained_logprobs=Logprobs(trained.logprobs[place]),
                advantages=Advantages(trained.advantages[place]),
                mask=trained.mask[place],
                teacher_logprobs=trained.teacher_logprobs and Logprobs(trained.teacher_logprobs[place]),
            )
    return tokens


def _place(trained: TrainedTokens, step: Step) -> slice | None:
    """Return where the columns of an update hold the step; None: it did not learn from it."""
    ends = accumulate(size for _, _, size in trained.calls)
    for (call_id, choice, size), end in zip(trained.calls, ends, strict=True):
        if (call_id, choice) == (step.call_id, step.choice):
            return slice(end - size, end)
    return None
