"""Tracebacks of agents, for people who read a failed attempt: short, and without what it must not hold."""

import sysconfig
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Final

from agent_layer.recorder import KeyScrubber

_MAX_TRACEBACK_LENGTH = 4000
"""Characters; the middle of a longer one is left out."""
_MAX_FRAMES = 12
"""Frames of one error; the middle ones of more are left out."""
_OURS: Final = Path(__file__).resolve().parents[2]
_FOREIGN: Final = (
    *(str(_OURS / name) for name in ("agent_layer", "envs", "tracer", "trainer_adapter")),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    "<frozen",
)
"""Beginnings of the paths of code that is not the user's."""
_SCRUBBER = KeyScrubber(())


def describe_traceback(error: BaseException) -> str | None:
    """Return the traceback of an error of foreign code, causes included, shortened to the user's frames.

    Frames of libraries are left out, but for the innermost one. It has no values of variables, and no keys of rollouts.

    Returns: at most 4,000 characters and a mark where some are left out; None: the error has no traceback.
    """
    try:
        described = TracebackException.from_exception(error, compact=True)
        if not _shorten(described, set()):
            return None
        text = _SCRUBBER.scrub_text("".join(described.format()).rstrip())
    except Exception:  # noqa: BLE001  # the error's own code, which may raise anything
        return None
    half = _MAX_TRACEBACK_LENGTH // 2
    return text if len(text) <= _MAX_TRACEBACK_LENGTH else f"{text[:half]}\n  …\n{text[-half:]}"


def _shorten(described: TracebackException, seen: set[int]) -> bool:
    """Leave out frames of libraries, in causes and groups too. Returns whether any frame is left."""
    if id(described) in seen:
        return False
    seen.add(id(described))
    own = [frame for frame in described.stack if not frame.filename.startswith(_FOREIGN)]
    kept: list[FrameSummary] = own if described.stack[-1:] == own[-1:] else [*own, *described.stack[-1:]]
    if len(kept) > _MAX_FRAMES:
        kept = kept[: _MAX_FRAMES // 2] + kept[-_MAX_FRAMES // 2 :]
    described.stack = StackSummary.from_list(kept)
    others = [described.__cause__, described.__context__, *(described.exceptions or ())]
    left = [_shorten(one, seen) for one in others if one is not None]
    return bool(kept) or any(left)
