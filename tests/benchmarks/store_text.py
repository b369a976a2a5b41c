"""Text that compresses as models' text does, with token ids and log-probabilities."""

from functools import cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

__all__ = ["Text", "write_text"]

_NUM_WORDS = 8_000
_VOCABULARY = 150_000
_SYLLABLES = ["ta", "re", "mi", "con", "ing", "ver", "so", "lu", "ent", "ber", "ka", "ous", "ne", "pro", "di", "er"]


class Text(NamedTuple):
    """Words and how a tokenizer cuts them up."""

    words: str
    ids: list[int]
    logprobs: list[float]
    """[num_ids]."""


def write_text(random: Random, num_words: int) -> Text:
    """Write ``num_words`` words; frequent ones are one token, rare ones two."""
    words, list_ids, weights = _lexicon()
    chosen = random.choices(range(_NUM_WORDS), cum_weights=weights, k=num_words)
    ids = [token for word in chosen for token in list_ids[word]]
    certain = [random.random() < 0.6 for _ in ids]
    logprobs = [-random.expovariate(500.0) if sure else -random.expovariate(1.2) for sure in certain]
    return Text(" ".join([words[word] for word in chosen]), ids, logprobs)


@cache
def _lexicon() -> tuple[list[str], list[tuple[int, ...]], list[float]]:
    """Words, the token ids of each, and their frequencies added up, after Zipf."""
    random = Random(0)
    words = ["".join(random.choices(_SYLLABLES, k=1 + (rank > 60) + (rank > 1500))) for rank in range(_NUM_WORDS)]
    ids = [tuple(random.sample(range(_VOCABULARY), 1 + (rank > 2500))) for rank in range(_NUM_WORDS)]
    return words, ids, list(accumulate(1 / (rank + 3) for rank in range(_NUM_WORDS)))
