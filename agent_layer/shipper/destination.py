"""This file holds what shipping asks of the place that logs go to, and the choice between the two that there are."""

from collections.abc import Sequence
from typing import Protocol

from agent_layer.settings import Settings


class Destination(Protocol):
    """Where the records of logs become part of the store. Any number of threads may use it.

    Every method raises UnreachableError when a server does not do its part.
    """

    num_at_once: int
    """Logs in transit at the same time; a store far away answers slowly."""

    def store(self, name: str, contents: Sequence[bytes]) -> str | None:
        """Bring the records of a log, in stored form, into the store and its index; doing it again changes nothing.

        Returns: None once they are committed; otherwise why they never can be.
        """
        ...

    def ship_decisions(self) -> int:
        """Bring the dispatcher's decisions there too, where they can be seen; give the number of segments made."""
        ...

    def close(self) -> None:
        """Let go of its connections; nothing may be in transit."""
        ...


def open_destination(settings: Settings) -> Destination:
    """Give the ingest server that the settings name, or else Redis and objects themselves.

    Raises: UnreachableError: Redis does not answer.
    """
    if settings.ingest_url is not None:
        from agent_layer.shipper.remote import RemoteDestination  # noqa: PLC0415  # each leaves the other's imports out

        return RemoteDestination(settings)
    from agent_layer.shipper.direct import open_direct  # noqa: PLC0415

    return open_direct(settings)
