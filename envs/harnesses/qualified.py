"""Results of ``harnesses check``: ours, which travel with the package, and those of this directory."""

from pathlib import Path
from typing import Final

import msgspec

from agent_layer.infra import make_private, replace_file
from agent_layer.settings import Settings

OURS: Final = Path(__file__).parent / "qualified"
"""One file each, by name."""


class PartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the check counted: one rollout."""

    name: str
    num_calls: int
    """Calls that the engine answered, or began to."""
    num_steps: int
    sampled: int
    """Tokens that the engine counted."""
    trained: int
    """Sum of the loss masks of the rollout's samples."""
    lost: dict[str, int]
    """Tokens that are sampled and not trained, by cause; with ``trained`` they are ``sampled``."""
    num_rows: int
    longest_row: int
    row_tokens: int
    """Tokens of all rows, prompts included."""
    forks: dict[str, int]
    """Calls whose prompt breaks the tokens that it should continue, by cause."""
    findings: list[str]
    """Findings that the declaration does not list."""
    num_agents: int = 0
    """Sub-agents that have a name and training rows of their own."""
    fault: str | None = None
    """Why the part did not go as the script says; None: it did."""


class RenderedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The recordings of all parts, rendered by a real chat template and counted by a real vocabulary."""

    template: str
    first_request: int
    longest_row: int
    num_rows: int
    row_tokens: int
    sampled: int
    short_row: int = 0
    """Longest row of the parts with few turns."""


class NeededLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Least lengths in tokens, of the longest template, with which a rollout of few turns is trained whole."""

    max_model_len: int
    """Holds the first request and the longest answer that its configuration announces."""
    max_row_tokens: int
    """Holds the longest row of the parts with few turns."""


class Qualification(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check."""

    harness: str
    version: str
    checked_on: str
    """Date, UTC."""
    agent_layer: str
    interpreter: str
    box: str = "none"
    """Kind of sandbox that it ran in; ``none``: it had the user's rights."""
    first_request: int
    """Words of its first request."""
    parts: list[PartFigures]
    rendered: list[RenderedFigures] = []
    """Empty: no real vocabulary is installed."""
    needs: NeededLengths | None = None
    """None: no real vocabulary is installed."""

    @property
    def is_clean(self) -> bool:
        """Whether every part went as the script says and the policy lost nothing but to allowed causes."""
        faults = (part.fault or part.findings or set(part.lost) - ALLOWED_LOSSES for part in self.parts)
        return bool(self.parts) and not any(faults)


ALLOWED_LOSSES: Final = frozenset({"aux", "cut_stream"})
"""Causes for which sampled tokens are not trained in the check's script: side calls, and streams that the agent cut."""


def find_qualification(settings: Settings, name: str) -> Qualification | None:
    """Return the last clean result of this directory, else ours; None: there is none."""
    found = (_read(path) for path in (_path(settings, name), OURS / f"{name}.json"))
    return next((result for result in found if result is not None and result.is_clean), None)


def find_failure(settings: Settings, name: str) -> Qualification | None:
    """Return the last result of this directory if it is not clean."""
    return _read(_path(settings, name, "failed"))


def save_qualification(settings: Settings, result: Qualification) -> Path:
    """Store a result and return its path: a clean one in place of the last, another one beside it."""
    failed = _path(settings, result.harness, "failed")
    path = _path(settings, result.harness) if result.is_clean else failed
    make_private(path.parent)
    replace_file(path, msgspec.json.format(msgspec.json.encode(result)) + b"\n", private=False)
    if result.is_clean:
        failed.unlink(missing_ok=True)
    return path


def _read(path: Path) -> Qualification | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Qualification)
    except (OSError, msgspec.DecodeError):
        return None


def _path(settings: Settings, name: str, kind: str = "qualified") -> Path:
    return settings.dir.absolute() / "harnesses" / kind / f"{name}.json"
