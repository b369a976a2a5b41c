"""This file holds how the bodies of requests are read: as text that can be recorded, or as a record of one kind."""

from typing import TypeVar

import msgspec
from aiohttp import hdrs, web

from agent_layer.errors import BadInputError
from agent_layer.schema.codec import check_storable
from agent_layer.schema.untrusted import UNREADABLE

__all__ = ["read_body", "read_text"]

B = TypeVar("B", bound=msgspec.Struct)


async def read_text(request: web.Request) -> bytes:
    """Read the body, whose parts are recorded as they came: what is no text could never be read again.

    Raises: BadInputError: it is not UTF-8, or not compressed as its header says.
    """
    try:
        body = await request.read()
        if not body.isascii():
            body.decode()
    except web.RequestPayloadError as error:
        coding = request.headers.get(hdrs.CONTENT_ENCODING)
        raise BadInputError(
            f"{request.method} {request.path}: expected a whole body, {coding or 'plain'} as its header says, found"
            " another; correct the body or the header"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{request.method} {request.path}: expected a body in UTF-8, found {error}; correct the body"
        ) from error
    return body


async def read_body(request: web.Request, kind: type[B]) -> B:
    """Read the body as a record.

    Raises: BadInputError: it is none of this kind, or an integer has more than 64 bits.
    """
    try:
        body = msgspec.json.decode(await read_text(request) or b"{}", type=kind)
    except UNREADABLE as error:
        raise BadInputError(f"{request.method} {request.path}: {error}; correct the body") from error
    check_storable(body, f"{request.method} {request.path}")
    return body
