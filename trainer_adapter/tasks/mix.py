"""Weights of the sources of a run, in the one file that changes them while it runs: ``DIR/runs/RUN/mix.json``.

The trainer writes the configured weights into it when it starts; ``agent-layer mix`` or an editor changes ``weights``.
The latest word counts: weights that were changed here survive a restart, until the configuration itself changes.
"""

import logging
from collections.abc import Mapping
from math import isfinite
from pathlib import Path

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import make_private, replace_file
from agent_layer.schema import UNREADABLE
from agent_layer.settings import Settings

log = logging.getLogger(__name__)


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """Weights by the name of a source."""

    configured: dict[str, float]
    """Weights as the configuration has them."""
    weights: dict[str, float]
    """Weights by which the next task that is submitted is chosen."""


def mix_path(settings: Settings, run: str) -> Path:
    """Return the file of a run's mix."""
    return settings.dir / "runs" / run / "mix.json"


class MixFile:
    """The mix of one run, as its trainer and its user share it.

    Args:
        path: see ``mix_path``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._weights: dict[str, float] = {}

    def begin(self, configured: Mapping[str, float]) -> dict[str, float]:
        """Write the mix of a trainer that starts; return the weights in force."""
        stored = self._find()
        keeps = stored is not None and stored.configured == configured
        self._weights = stored.weights if stored is not None and keeps else dict(configured)
        self.write(Mix(configured=dict(configured), weights=self._weights))
        return self._weights

    def poll(self) -> dict[str, float]:
        """Return the weights in force; a mix that cannot be used is logged once, and changes nothing."""
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return self._weights
        if (seen := (state.st_ino, state.st_mtime_ns)) != self._seen:
            self._seen = seen
            try:
                self._weights = self.read().weights
            except BadInputError as error:
                log.warning("%s; the run goes on with %s", error, msgspec.json.encode(self._weights).decode())
        return self._weights

    def change(self, changes: Mapping[str, float]) -> Mix:
        """Change the weights of some sources; return the new mix.

        Raises: BadInputError: the run has no mix, no such source, or a weight is out of bounds.
        """
        stored = self.read()
        mix = self._check(stored, {**stored.weights, **changes})
        self.write(mix)
        return mix

    def read(self) -> Mix:
        """Return the mix.

        Raises: BadInputError: there is none, or what there is cannot be read.
        """
        if (found := self._find()) is not None:
            return found
        raise BadInputError(
            f"mix {self._path}: expected the mix of a run, found none; its trainer writes it when it starts, on its"
            " own machine"
        )

    def write(self, mix: Mix) -> None:
        """Write the mix; a reader sees the old file or the new one."""
        make_private(self._path.parent)
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(mix)) + b"\n")

    def _find(self) -> Mix | None:
        try:
            stored = msgspec.json.decode(self._path.read_bytes(), type=Mix)
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise BadInputError(
                f"mix {self._path}: expected JSON with the weight of each source, found: {error}; correct the file"
            ) from error
        return self._check(stored, stored.weights)

    def _check(self, mix: Mix, weights: Mapping[str, float]) -> Mix:
        """Return the mix with these weights; a source that is not named has its configured weight."""
        if unknown := weights.keys() - mix.configured.keys():
            raise BadInputError(
                f"mix {self._path}: expected sources of the run ({', '.join(mix.configured)}), found"
                f" {', '.join(sorted(unknown))}; check the names"
            )
        known = {**mix.configured, **weights}
        for name, weight in known.items():
            if not (isfinite(weight) and weight >= 0):
                raise BadInputError(
                    f"mix {self._path}: expected weights of 0 or more, found {name}={weight:g}; correct it"
                )
        if not sum(known.values()) > 0:
            raise BadInputError(f"mix {self._path}: expected a weight above 0, found none; raise one")
        return msgspec.structs.replace(mix, weights=known)
