"""Fingerprints of model directories: hashes of the tokenizer and the chat template that make the token ids."""

from pathlib import Path
from typing import Final

import msgspec

from agent_layer.schema import UNREADABLE, JsonObject, content_hash

_TOKENIZER_FILES: Final = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
)
_CONFIG, _TEMPLATE = "tokenizer_config.json", "chat_template"
_TEMPLATE_FILES: Final = ("chat_template.jinja", "chat_template.json")


class Fingerprints(msgspec.Struct, frozen=True, kw_only=True):
    """Content hashes. None: the directory has no such files, or is not readable from here."""

    tokenizer_hash: str | None = None
    template_hash: str | None = None


def read_fingerprints(location: str) -> Fingerprints:
    """Hash a model's tokenizer files and chat template.

    Args:
        location: directory under which an engine loads the model; names of hub models have no fingerprint.
    """
    directory = Path(location)
    if not directory.is_dir():
        return Fingerprints()
    try:
        config = msgspec.json.decode((directory / _CONFIG).read_bytes(), type=JsonObject)
    except (OSError, *UNREADABLE):
        config = {}
    files = [name.encode() + b"\0" + (directory / name).read_bytes() for name in _present(directory, _TOKENIZER_FILES)]
    settings = {name: value for name, value in config.items() if name != _TEMPLATE}
    if settings:
        files.append(msgspec.json.encode(settings, order="deterministic"))
    templates = [(directory / name).read_bytes() for name in _present(directory, _TEMPLATE_FILES)[:1]]
    if not templates and _TEMPLATE in config:
        templates = [msgspec.json.encode(config[_TEMPLATE], order="deterministic")]
    return Fingerprints(tokenizer_hash=_hash_contents(files), template_hash=_hash_contents(templates))


def _present(directory: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if (directory / name).is_file()]


def _hash_contents(contents: list[bytes]) -> str | None:
    return content_hash(b"\0\0".join(contents)) if contents else None
