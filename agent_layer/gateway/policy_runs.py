"""This file holds which policy version sampled which part of an answer that several of them sampled."""

from collections.abc import Sequence

from agent_layer.schema.step import PolicyRun

__all__ = ["runs_of"]


def runs_of(before: Sequence[PolicyRun], version: int, num_tokens: int) -> list[PolicyRun]:
    """Say of all tokens so far who sampled them.

    Args:
        before: runs of (version, number of tokens) of those that are known already.
        version: sampled the rest.
        num_tokens: of all.

    Returns: runs without empty ones, of which no two that follow each other have the same version.
    """
    num_new = num_tokens - sum(number for _, number in before)
    if num_new <= 0:
        return list(before)
    if before and before[-1][0] == version:
        return [*before[:-1], (version, before[-1][1] + num_new)]
    return [*before, (version, num_new)]
