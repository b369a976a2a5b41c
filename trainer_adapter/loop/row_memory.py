"""What an update that ran out of memory has shown: the longest row that may fit, in a file beside the run's progress.

The groups of such an update come again after the restart. Without the file they would end every update to come.
"""

from pathlib import Path

import msgspec

from agent_layer.errors import AgentLayerError
from agent_layer.infra import make_private, replace_file
from agent_layer.settings import Settings


class RowTooLargeError(AgentLayerError):
    """An update ran out of memory, in the middle: the weights in memory are of no use any more."""


class RowMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Longest row that is trained from now on."""

    max_tokens: int


_KEPT_SHARE = 7, 8
"""Share kept of the longest row that did not fit; so that a few restarts are enough, whatever the others' lengths."""
_WORDS = ("out of memory", "allocate memory", "not enough memory")


def memory_path(settings: Settings, run: str) -> Path:
    """Return the file of a run."""
    return settings.dir / "runs" / run / "row_memory.json"


def read_row_memory(path: Path) -> int | None:
    """Return the longest row that may fit, prompt included; None: no update has run out of memory."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RowMemory).max_tokens
    except (FileNotFoundError, msgspec.DecodeError):  # none yet, or torn by a machine that lost power
        return None


def lower_row_memory(path: Path, longest: int, microbatch_tokens: int) -> int | None:
    """Record that a row was too long; return the longest one from now on.

    None: its micro-batch was of the size that the configuration asks for, so no row is to blame.
    """
    if longest <= microbatch_tokens:
        return None
    kept, whole = _KEPT_SHARE
    most = max(microbatch_tokens, longest * kept // whole)
    make_private(path.parent)
    replace_file(path, msgspec.json.encode(RowMemory(max_tokens=most)))
    return most


def is_out_of_memory(error: Exception) -> bool:
    """Whether an update failed for want of memory, of the GPU or of the machine."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _WORDS)
