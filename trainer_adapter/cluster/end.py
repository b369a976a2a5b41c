"""How a trainer on Ray ended early: its process writes it, the launcher reads it."""

from pathlib import Path

import msgspec

from agent_layer.errors import AgentLayerError, EngineError, UnreachableError

END_FILE = "end.json"
MAX_CHARACTERS = 600


class TrainerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a trainer on Ray ended early."""

    why: str
    is_final: bool = False
    """The run cannot go on by another start."""
    log: str = ""
    log_tail: str = ""


def is_final(error: BaseException) -> bool:
    """Return whether a run that ended with this error cannot go on by another start."""
    return isinstance(error, AgentLayerError) and not isinstance(error, EngineError | UnreachableError)


def write_end(directory: Path, error: BaseException) -> None:
    """Leave what ended a trainer to its launcher."""
    message, final = " ".join(str(error).split()), is_final(error)
    why = message if final else f"{type(error).__name__}: {message}"[:MAX_CHARACTERS]
    (directory / END_FILE).write_bytes(msgspec.json.encode(TrainerEnd(why=why, is_final=final)))


def read_end(directory: Path) -> TrainerEnd | None:
    """Return what ended a trainer; None: it wrote nothing."""
    try:
        return msgspec.json.decode((directory / END_FILE).read_bytes(), type=TrainerEnd)
    except OSError:
        return None
