"""This file holds how far a gateway can be reached: from this machine, from others through TLS, or as it was told."""

import ssl
from ipaddress import ip_address

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings

__all__ = ["check_exposure", "tls_of"]


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


def tls_of(settings: Settings) -> ssl.SSLContext | None:
    """Give what serves https; None when no certificate is named.

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
