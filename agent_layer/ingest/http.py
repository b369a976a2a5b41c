"""Access control of ``ingest`` (its own key or the operator's), and request bodies: read and unpacked up to a limit."""

import hmac

import zstandard
from aiohttp import hdrs, web

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings


class IngestKeys:
    """Checks keys.

    Raises: BadInputError: there is none.
    """

    def __init__(self, settings: Settings) -> None:
        self._keys = [key.encode() for key in (settings.api_key, settings.ingest_key) if key]
        if not self._keys:
            raise BadInputError("ingest: expected a key, found none; set AGENT_LAYER_INGEST_KEY or AGENT_LAYER_API_KEY")

    def is_allowed(self, request: web.Request) -> bool:
        """Whether the request carries a valid key, compared in constant time."""
        scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        sent_key = key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        encoded_key = sent_key.encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(encoded_key, known) for known in self._keys]  # constant time: compare all keys
        return any(matches)


async def read_body(request: web.Request, subject: str) -> bytes:
    """Read a request body and undo its content encoding.

    Raises:
        BadInputError: its content does not match its encoding header.
        HTTPRequestEntityTooLarge: it is too long.
    """
    try:
        return await request.read()
    except web.RequestPayloadError as error:
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "plain")
        raise BadInputError(
            f"{subject}: expected a body that is {encoding}, found another; check the exporter, or whatever sends it"
        ) from error


def unpack(packed: bytes, subject: str, max_bytes: int) -> bytes:
    """Undo zstd.

    Raises:
        BadInputError: it is not zstd, or truncated.
        HTTPRequestEntityTooLarge: its declared size is above the limit.
    """
    try:
        size = zstandard.frame_content_size(packed)
        if size > max_bytes:
            raise web.HTTPRequestEntityTooLarge(max_bytes, size)
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=max_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadInputError(f"{subject}: expected a zstd body, found another ({error}); check the sender") from error
