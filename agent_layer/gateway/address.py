"""This file holds under which address a gateway process is reached by whoever opened a rollout, and by its agent."""

from aiohttp import web

from agent_layer.errors import BadInputError

__all__ = ["address_of"]


def address_of(request: web.Request, public_host: str | None = None, port: int | None = None) -> str:
    """Give scheme, host and port.

    Args:
        request: came from somebody who reached this machine under its ``Host``.
        public_host: takes the place of that host, where agents know the machine by another.
        port: takes the place of that port: it belongs to this process alone.

    Raises: BadInputError: the ``Host`` is none.
    """
    if public_host is None and port is None:
        return f"{request.scheme}://{request.host}"
    try:
        url = request.url.origin()
    except ValueError as error:
        raise BadInputError(
            f"header Host {request.host!r}: expected HOST or HOST:PORT, found {error}; correct it"
        ) from error
    return str(url.with_host(public_host or url.host or "127.0.0.1").with_port(port or url.port))
