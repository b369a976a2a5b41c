"""Numbers of tokens without a tokenizer: estimates that rather exceed what an engine counts, and cuts to a number."""

import re
from collections.abc import Iterable

_PIECE = re.compile(r"[A-Za-z]+|\s+|[^A-Za-z\s]")
_LETTERS_PER_TOKEN, _SPACES_PER_TOKEN, _BYTES_PER_TOKEN = 3, 4, 2
"""Tokenizers need fewer tokens for words, indentation and other scripts. Digits and signs count one each."""
_MAX_CHARACTERS = 5
"""Characters of one token by this estimate, and the space behind it."""
_NOTE = "\n[… {num:,} characters cut out here …]\n"
_NOTE_TOKENS = 24


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has; for prose and code rather too many than too few."""
    return sum(_cost(piece) for piece in _PIECE.findall(text))


def cut_middle(text: str, max_tokens: int) -> str:
    """Return the text, or its beginning and end around a note of how much is missing.

    Args:
        text: what may be too long.
        max_tokens: of the result, by estimate; below 24 only the note is left.
    """
    if len(text) <= _MAX_CHARACTERS * max_tokens + 1 and estimate_tokens(text) <= max_tokens:
        return text
    room = max(0, max_tokens - _NOTE_TOKENS)
    window = _MAX_CHARACTERS * room
    num_head = _count_fitting(_PIECE.findall(text[:window]), room - room // 2)
    rest = text[max(num_head, len(text) - window) :]
    num_tail = _count_fitting(reversed(_PIECE.findall(rest)), room // 2)
    num_missing = len(text) - num_head - num_tail
    return f"{text[:num_head]}{_NOTE.format(num=num_missing)}{text[len(text) - num_tail :]}"


def _count_fitting(pieces: Iterable[str], max_tokens: int) -> int:
    """Return how many characters the first pieces have that fit."""
    num_characters = 0
    for piece in pieces:
        max_tokens -= _cost(piece)
        if max_tokens < 0:
            break
        num_characters += len(piece)
    return num_characters


def _cost(piece: str) -> int:
    if piece.isspace():
        return 0 if piece == " " else -(-len(piece) // _SPACES_PER_TOKEN)
    if piece.isascii():
        return -(-len(piece) // _LETTERS_PER_TOKEN) if piece.isalpha() else 1
    return -(-len(piece.encode("utf-8", "replace")) // _BYTES_PER_TOKEN)
