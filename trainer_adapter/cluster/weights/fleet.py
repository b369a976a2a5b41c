"""veRL's servers as engines of our gateway. Nothing here needs veRL.

A switch is a walk: gateways hold calls and report none in flight (draining), veRL puts its servers to sleep, trains and
sends weights (loading), gateways send again (serving). Between the first and the last no call reaches a server, so each
token has the version that the registry names. Calls over HTTP would pass veRL's own gate.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from redis import Redis

from agent_layer.engines import (
    Engine,
    EngineControl,
    EngineHold,
    EngineRegistry,
    open_engine_registry,
    read_fingerprints,
)
from agent_layer.errors import EngineError
from agent_layer.settings import Settings


def name_location(run: str, number: int, model: Path) -> str:
    """Return where the weights of a version lie: the first in a directory, others in veRL's memory only."""
    return str(model) if number == 0 else f"ray:{run}/{number}"


class EngineFleet:
    """The servers of one run, as the registry knows them. All calls come from veRL's thread.

    Args:
        settings: of the namespace.
        run: that they serve.
        redis: with the registry.
        model: directory of the first weights, with tokenizer and template.
        access_keys: what each server asks for, by its address.
        push: sends the trained weights to all servers, as a version; returns the addresses of those that do not confirm
            that they hold it.
    """

    def __init__(
        self,
        settings: Settings,
        run: str,
        redis: Redis,
        model: Path,
        access_keys: Mapping[str, str],
        push: Callable[[int], Collection[str]],
    ) -> None:
        self._settings, self._run, self._model, self._push = settings, run, model, push
        self._access_keys = dict(access_keys)
        self._registry: EngineRegistry = open_engine_registry(settings, redis)
        self._hold: EngineHold | None = None
        """Of the calls to all servers, while they are out of service."""
        self.version: int | None = None
        """That the servers hold; None: they have not served yet."""

    @property
    def is_serving(self) -> bool:
        """Whether gateways send calls to all of them."""
        return self.version is not None and self._hold is None

    def take_out(self) -> None:
        """Let gateways hold the calls of all servers, and wait for those in flight.

        Raises: EngineError: some call did not end within ``drain_seconds``.
        """
        if self.is_serving:
            self._hold = self._registry.hold(self._access_keys, self._settings.drain_seconds)

    def serve(self, number: int | None = None) -> None:
        """Send the trained weights to all servers as this version, unless they serve it; then let gateways send.

        Args:
            number: the version; None: the one that they hold.
        """
        number = self.version or 0 if number is None else number
        if self.is_serving and number == self.version:
            return
        self.take_out()
        missed = self._send(number)
        self.version = number
        location = name_location(self._run, number, self._model)
        if self._hold is None:
            for url in self._access_keys:
                if url not in missed:
                    self._register(url, number, location)
        else:
            self._end_hold(location, missed)

    def replace(self, dead: Sequence[str], relaunch: Callable[[], Mapping[str, str]]) -> None:
        """Start servers in place of dead ones, and send them the weights that the others serve.

        Calls to all of them wait meanwhile. A dead server stays registered until another serves, so that its run is
        not without an engine of its own.

        Args:
            dead: addresses of servers whose processes have ended.
            relaunch: starts as many others; returns the key of each by its address.
        """
        assert self.version is not None  # the fleet serves
        self.take_out()
        new = relaunch()
        kept = {url: key for url, key in self._access_keys.items() if url not in dead}
        self._access_keys = {**kept, **new}
        missed = self._send(self.version)
        location = name_location(self._run, self.version, self._model)
        for url in new:
            if url not in missed:
                self._register(url, self.version, location)
        for url in dead:
            if url not in new:  # a new server may have the address of a dead one
                self._registry.forget(url)
        self._end_hold(location, [*dead, *missed])

    def _end_hold(self, location: str, missed: Collection[str]) -> None:
        """Release the servers; one that another driver moved raises an error, and the next switch holds it again."""
        hold, self._hold = self._hold, None
        if hold is not None and self.version is not None:
            hold.release(self.version, location, missed=missed, files=str(self._model))

    def remove(self) -> None:
        """Remove the servers from the registry: they end with the trainer."""
        for url in self._access_keys:
            self._registry.forget(url)

    def _send(self, number: int) -> Collection[str]:
        """Send the trained weights; return the servers that do not hold them, which get no calls.

        Raises: EngineError: none holds them.
        """
        missed = self._push(number)
        if all(url in missed for url in self._access_keys):
            raise EngineError(
                f"engine {', '.join(self._access_keys)}: expected version {number} to arrive, but no server confirms"
                " that it holds it; see the trainer's log"
            )
        return missed

    def _register(self, url: str, number: int, location: str) -> None:
        found, access_key = read_fingerprints(str(self._model)), self._access_keys[url]
        report = EngineControl(url, access_key=access_key).probe()
        self._registry.register(
            Engine(
                url=url,
                run=self._run,
                version=number,
                location=location,
                model=report.adapter or report.model,
                logprobs_mode="processed",
                state="serving",
                epoch=0,
                kind=report.kind,
                is_joined=True,
                is_pushed=True,
                tokenizer_hash=found.tokenizer_hash,
                template_hash=found.template_hash,
            ),
            access_key,
        )
