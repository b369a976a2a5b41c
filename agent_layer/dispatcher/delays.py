"""This file holds how long is waited before something that has failed is tried again."""

__all__ = ["retry_delay"]

_MOST_DOUBLINGS = 6


def retry_delay(base_seconds: float, num_failed: int, jitter: float) -> float:
    """Double it with each failure, up to 64 times the base, and draw from its upper half, so that retries spread out.

    Args:
        base_seconds: the longest after the first failure.
        num_failed: failures before this one.
        jitter: from 0 to 1, drawn by the caller.

    Returns: seconds.
    """
    return base_seconds * 2 ** min(num_failed, _MOST_DOUBLINGS) * (1 + jitter) / 2
