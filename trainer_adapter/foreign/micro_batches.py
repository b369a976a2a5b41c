"""Micro-batches of prime-rl (0.8): what a rank reads for a step is a list of them as MessagePack, arrays without names.

They have no policy versions: each token of a step is of the weights before it. Pure.
"""

from collections.abc import Sequence

import msgspec

from trainer_adapter.data import TrainingBatch


class MicroBatch(msgspec.Struct, array_like=True):
    """Rows side by side; the order of the fields is prime-rl's, and what it has behind them is not sent.

    Each list is [num_tokens] unless it says otherwise.
    """

    input_ids: list[int]
    loss_mask: list[bool]
    advantages: list[float]
    inference_logprobs: list[float]
    position_ids: list[int]
    """From 0 in each row."""
    sequence_lengths: list[int]
    """[num_rows]."""
    temperatures: list[float]
    env_names: list[str]
    """Task types: prime-rl's metrics are by them."""
    seq_lens: list[int]
    """[num_rows], as ``sequence_lengths``."""


def pack_rows(
    batch: TrainingBatch, advantages: Sequence[Sequence[float]], temperature: float, seq_len: int
) -> list[MicroBatch]:
    """Return the rows of a batch side by side, longest first, each where it fits (first-fit decreasing).

    Args:
        batch: its rows have at most ``seq_len`` tokens.
        advantages: [num_rows][num_response_tokens].
        temperature: of every call.
        seq_len: most tokens of a micro-batch.
    """
    found: list[MicroBatch] = []
    rows = zip(batch.samples, advantages, strict=True)
    for sample, own in sorted(rows, key=lambda row: -len(row[0].prompt_ids) - len(row[0].response_ids)):
        size, prompt = len(sample.prompt_ids) + len(sample.response_ids), [0.0] * len(sample.prompt_ids)
        fitting = (one for one in found if len(one.input_ids) + size <= seq_len)
        if (into := next(fitting, None)) is None:
            into = MicroBatch([], [], [], [], [], [], [], [], [])
            found.append(into)
        into.input_ids += [*sample.prompt_ids, *sample.response_ids]
        into.loss_mask += [False] * len(prompt) + [bool(one) for one in sample.loss_mask]
        into.advantages += [*prompt, *own]
        into.inference_logprobs += [*prompt, *sample.logprobs]
        into.position_ids += range(size)
        into.sequence_lengths.append(size)
        into.temperatures += [temperature] * size
        into.env_names += [sample.task_type] * size
        into.seq_lens.append(size)
    return found


def split_ranks(micro_batches: Sequence[MicroBatch], num_ranks: int) -> list[list[MicroBatch]]:
    """Return the micro-batches of each rank, as many for each: copies that train nothing fill up."""
    first = micro_batches[0]
    idle = msgspec.structs.replace(
        first, loss_mask=[False] * len(first.loss_mask), advantages=[0.0] * len(first.loss_mask)
    )
    whole = [*micro_batches, *[idle] * (-len(micro_batches) % num_ranks)]
    return [whole[rank::num_ranks] for rank in range(num_ranks)]
