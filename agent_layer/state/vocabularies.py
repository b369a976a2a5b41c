"""Vocabularies: the bytes of each token of a tokenizer, so that stored token ids can be read without the model.

One object for each tokenizer, ``{namespace}/vocab/{tokenizer hash}``: a frame with the record, packed with zstd. It is
written once, and never removed: trajectories of any run may need it.
"""

from itertools import accumulate

import zstandard

from agent_layer.errors import CorruptRecordError, NotFoundError
from agent_layer.infra import Keys, ObjectStore
from agent_layer.recorder import frame, unframe
from agent_layer.schema import Vocabulary, decode, encode


class TokenBytes:
    """Bytes of the tokens of one tokenizer by id. One token may be a part of a character."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._sizes, self._content = vocabulary.sizes, vocabulary.content
        self._ends = list(accumulate(max(0, size) for size in vocabulary.sizes))

    def __getitem__(self, token_id: int) -> bytes | None:
        """Return the bytes of a token; None: no token has the id."""
        if not 0 <= token_id < len(self._sizes) or self._sizes[token_id] < 0:
            return None
        end = self._ends[token_id]
        return self._content[end - self._sizes[token_id] : end]


def store_vocabulary(keys: Keys, objects: ObjectStore, vocabulary: Vocabulary) -> None:
    """Store a vocabulary. Raises: UnreachableError."""
    packed = zstandard.ZstdCompressor().compress(encode(vocabulary))
    objects.put(_key(keys, vocabulary.tokenizer_hash), frame(packed))


def has_vocabulary(keys: Keys, objects: ObjectStore, tokenizer_hash: str) -> bool:
    """Whether the vocabulary of a tokenizer is stored. Raises: UnreachableError."""
    key = _key(keys, tokenizer_hash)
    return key in objects.list(key)


def read_vocabulary(keys: Keys, objects: ObjectStore, tokenizer_hash: str) -> TokenBytes | None:
    """Fetch the vocabulary of a tokenizer; None: it is not stored.

    Raises: CorruptRecordError: stored bytes are not what their checksum says. UnreachableError.
    """
    key = _key(keys, tokenizer_hash)
    try:
        packed = unframe(objects.get(key))
    except NotFoundError:
        return None
    try:
        found = None if packed is None else decode(zstandard.ZstdDecompressor().decompress(packed))
    except zstandard.ZstdError:
        found = None
    if isinstance(found, Vocabulary):
        return TokenBytes(found)
    raise CorruptRecordError(
        f"vocabulary {tokenizer_hash}: expected a record with its checksum at {key!r}, found other bytes; remove the"
        " object, the next training run with this tokenizer stores it again"
    )


def _key(keys: Keys, tokenizer_hash: str) -> str:
    return f"{keys.namespace}/vocab/{tokenizer_hash}"
