"""Micro-batches of rows with similar lengths, for engines that pad each micro-batch to its longest row. Pure."""

from collections.abc import Sequence


def split_by_length(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Return micro-batches, longest rows first, so that too little memory shows at once.

    Args:
        lengths: [num_rows] tokens of each row.
        max_tokens: of a micro-batch, padding included; a longer row has one of its own.

    Returns:
        positions of rows, each once.
    """
    parts: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if parts and (len(parts[-1]) + 1) * lengths[parts[-1][0]] <= max_tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts
