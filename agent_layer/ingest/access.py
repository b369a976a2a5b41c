"""This file holds who may send anything to ``ingest``: whoever knows its key, or the operator's."""

import hmac

from aiohttp import hdrs, web

from agent_layer.errors import BadInputError
from agent_layer.settings import Settings

__all__ = ["Access"]


class Access:
    """Knows the keys.

    Raises: BadInputError: there is none.
    """

    def __init__(self, settings: Settings) -> None:
        self._keys = [key.encode() for key in (settings.api_key, settings.ingest_key) if key]
        if not self._keys:
            raise BadInputError("ingest: expected a key, found none; set AGENT_LAYER_INGEST_KEY or AGENT_LAYER_API_KEY")

    def is_allowed(self, request: web.Request) -> bool:
        """Whether the request carries a key; how long that takes tells nothing of it."""
        scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        told = key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        said = told.encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(said, known) for known in self._keys]  # all, whatever the first says
        return any(matches)
