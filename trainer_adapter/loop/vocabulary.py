"""The vocabulary of a model directory, stored once for each tokenizer so that readers need no tokenizer."""

from itertools import chain
from pathlib import Path
from typing import Final, cast

import msgspec

from agent_layer.engines import read_fingerprints
from agent_layer.infra import Keys, ObjectStore
from agent_layer.schema import JsonObject, TokenIds, Vocabulary, as_json_object, as_json_objects
from agent_layer.state import has_vocabulary, store_vocabulary

_FILE: Final = "tokenizer.json"
_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
"""A space, as SentencePiece writes it."""


def keep_vocabulary(model: Path, keys: Keys, objects: ObjectStore) -> None:
    """Store the vocabulary of a model unless it is stored; a model without ``tokenizer.json`` has none to store.

    Raises: UnreachableError: the object store does not answer.
    """
    tokenizer_hash = read_fingerprints(str(model)).tokenizer_hash
    if tokenizer_hash is None or not (model / _FILE).is_file() or has_vocabulary(keys, objects, tokenizer_hash):
        return
    store_vocabulary(keys, objects, make_vocabulary((model / _FILE).read_bytes(), tokenizer_hash))


def make_vocabulary(content: bytes, tokenizer_hash: str) -> Vocabulary:
    """Return the bytes of each token of a tokenizer in the form of Hugging Face's tokenizers.

    Args:
        content: of its ``tokenizer.json``.
        tokenizer_hash: see ``read_fingerprints``.
    """
    document = msgspec.json.decode(content, type=JsonObject)
    kinds = set(_kinds(document.get("decoder"))) | set(_kinds(document.get("pre_tokenizer")))
    tokens = {token_id: _to_bytes(text, kinds) for text, token_id in _vocabulary(document)}
    for added in as_json_objects(document.get("added_tokens")):
        tokens[cast("int", added["id"])] = str(added["content"]).encode()
    bodies = [tokens.get(token_id) for token_id in range(max(tokens, default=-1) + 1)]
    return Vocabulary(
        tokenizer_hash=tokenizer_hash,
        sizes=TokenIds(-1 if body is None else len(body) for body in bodies),
        content=b"".join(body for body in bodies if body),
    )


def _vocabulary(document: JsonObject) -> list[tuple[str, int]]:
    """Return (text, id) of the tokens: BPE and WordPiece have a mapping, Unigram a list of (text, score)."""
    vocabulary = as_json_object(document.get("model")).get("vocab")
    if isinstance(vocabulary, dict):
        return list(cast("dict[str, int]", vocabulary).items())
    return [(text, number) for number, (text, _) in enumerate(cast("list[tuple[str, float]]", vocabulary or []))]


def _kinds(part: object) -> list[str]:
    """Return the types of a decoder or pre-tokenizer, and of those that it is a sequence of."""
    found = as_json_object(part)
    inner = as_json_objects(found.get("decoders")) + as_json_objects(found.get("pretokenizers"))
    return [str(found.get("type")), *chain.from_iterable(map(_kinds, inner))]


def _to_bytes(text: str, kinds: set[str]) -> bytes:
    if "ByteLevel" in kinds:
        return b"".join(_BYTE_OF.get(one, one.encode()) for one in text)
    if "ByteFallback" in kinds and len(text) == len("<0x00>") and text.startswith("<0x") and text.endswith(">"):
        return bytes.fromhex(text[3:5])
    if "WordPiece" in kinds:
        return text.removeprefix("##").encode() if text.startswith("##") else b" " + text.encode()
    return text.replace(_SPACE, " ").encode()


def _invert_byte_level() -> dict[str, bytes]:
    """Return the byte that each character of a byte-level vocabulary stands for (GPT-2: printable ones are as is)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("\xa1"), ord("\xac") + 1), *range(ord("\xae"), 256)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(256 + number): bytes([byte]) for number, byte in enumerate(others)}
    return {chr(byte): bytes([byte]) for byte in printable} | shifted


_BYTE_OF: Final = _invert_byte_level()
