"""Destination of logs: its protocol, and the choice between store and ingest server."""

from collections.abc import Sequence
from typing import Protocol

from agent_layer.settings import Settings


class Destination(Protocol):
    """Turns the records of logs into a part of the store. Thread-safe.

    Every method raises UnreachableError when a server fails to do its part.
    """

    num_at_once: int
    """Logs in transit at the same time; a distant store answers slowly."""

    def store(self, name: str, contents: Sequence[bytes]) -> str | None:
        """Bring the records of a log, in stored form, into the store and its index. Idempotent.

        Returns: None once they are committed; otherwise why they never can be.
        """
        ...

    def ship_decisions(self) -> int:
        """Bring the dispatcher's decisions there too, if they are reachable; return the number of new segments."""
        ...

    def close(self) -> None:
        """Close its connections; nothing may be in transit."""
        ...


def open_destination(settings: Settings) -> Destination:
    """Open the ingest server that the settings name, else the store itself.

    Raises: UnreachableError: Redis does not answer.
    """
    if settings.ingest_url is not None:
        from agent_layer.shipper.remote import RemoteDestination  # noqa: PLC0415  # each leaves the other's imports out

        return RemoteDestination(settings)
    from agent_layer.shipper.direct import open_direct  # noqa: PLC0415

    return open_direct(settings)
