"""Engines whose calls wait while their owner changes their weights."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from agent_layer.engines.entry import to_text
from agent_layer.engines.fingerprints import read_fingerprints


class _Registry(Protocol):
    def serve(
        self, epochs: Mapping[str, int], fields: Mapping[str, Mapping[str, str]], *, is_switch: bool = True
    ) -> float: ...


@dataclass(frozen=True, kw_only=True)
class EngineHold:
    """Engines whose calls wait while their owner changes their weights.

    hold ── owner aborts, pushes, resets the cache, resumes ── release(version): calls go on under this version
      └──── nothing was pushed ─────────────────────────────── cancel():         calls go on as before

    An owner that dies in between leaves the engines out of service, and the next ``hold`` takes them over.
    """

    registry: _Registry
    epochs: Mapping[str, int]
    serving: Collection[str]
    """Engines that served before."""

    def release(
        self,
        version: int,
        location: str,
        *,
        missed: Collection[str] = (),
        models: Mapping[str, str] | None = None,
        files: str | None = None,
    ) -> float:
        """Let calls go to the engines again. An engine that left meanwhile is skipped.

        Args:
            version: policy version that they serve now; register it first.
            location: directory or name of its weights.
            missed: engines that did not confirm the version: they stay out of service until a later switch.
            models: by engine the model that calls must name from now on; others as before.
            files: directory with tokenizer and template; None: ``location``.

        Returns: the longest time for which an engine held calls, in seconds.
        Raises: EngineError: another driver moved an engine meanwhile; all others are released.
        """
        about = {"version": str(version), "location": location, "is_assumed": to_text(value=False)}
        found = msgspec.structs.asdict(read_fingerprints(files or location))
        about |= {name: to_text(value) for name, value in found.items()}
        named = {url: {"model": model} for url, model in (models or {}).items()}
        return self._serve({url: about | named.get(url, {}) for url in self.epochs if url not in missed})

    def cancel(self) -> None:
        """Let the engines serve what they served before, because no weights changed.

        Raises: EngineError: another driver moved an engine meanwhile; all others serve.
        """
        self._serve({url: {} for url in self.epochs if url in self.serving}, is_switch=False)

    def _serve(self, fields: Mapping[str, Mapping[str, str]], *, is_switch: bool = True) -> float:
        return self.registry.serve({url: self.epochs[url] for url in fields}, fields, is_switch=is_switch)
