"""Where a gateway listens, and how far it can be reached: from this machine, or from others through TLS."""

import ssl
from ipaddress import ip_address

from aiohttp import web

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings


def check_exposure(settings: Settings, host: str) -> None:
    """Refuse to listen where keys and prompts would travel readable.

    Args:
        settings: may say that this is wanted, or name a certificate.
        host: numeric address that is listened at.

    Raises: BadInputError: others can reach it, without TLS.
    """
    if settings.tls_cert is None and not settings.insecure and not ip_address(host).is_loopback:
        raise BadInputError(
            f"gateway address {host}: expected TLS where other machines can connect, because keys travel in headers,"
            " but there is no certificate; set AGENT_LAYER_TLS_CERT and AGENT_LAYER_TLS_KEY, listen at 127.0.0.1, or"
            " say --insecure where the network is trusted"
        )


def load_tls(settings: Settings) -> ssl.SSLContext | None:
    """Load what serves https; None when no certificate is named.

    Raises: BadInputError: certificate or key cannot be read, or do not belong together.
    """
    if settings.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise BadInputError(
            f"certificate {settings.tls_cert}: expected a PEM certificate and its key, found {error}; correct"
            " AGENT_LAYER_TLS_CERT and AGENT_LAYER_TLS_KEY"
        ) from error
    return context


def public_address(request: web.Request, public_host: str | None = None, port: int | None = None) -> str:
    """Return scheme, host and port under which a client reaches this process.

    Args:
        request: from a client that reached this machine under its ``Host``.
        public_host: replaces that host, where agents know the machine by another.
        port: replaces that port: it belongs to this process alone.

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
