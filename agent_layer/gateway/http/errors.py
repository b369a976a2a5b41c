"""Errors as HTTP answers: with a status, and in the shape of the dialect that the client uses."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from aiohttp import web

from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    BadInputError,
    CaptureError,
    EngineError,
    NotFoundError,
    NotWholeError,
    UnreachableError,
)
from agent_layer.gateway.dialects import RefusedError, refusal

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS: dict[type[AgentLayerError], int] = {
    BadInputError: 400,
    NotFoundError: 404,
    NotWholeError: 409,
    CaptureError: 409,
    BackPressureError: 503,
    EngineError: 502,
    UnreachableError: 502,
}


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into answers with one sentence."""
    try:
        return await handler(request)
    except RefusedError as error:
        return refusal(request.path, error.status, error.code, error.message)
    except AgentLayerError as error:
        return refusal(request.path, _STATUS.get(type(error), 500), type(error).__name__, str(error))
    except web.HTTPRequestEntityTooLarge as error:
        sentence = f"{request.method} {request.path}: {error.text}; send less, or raise AGENT_LAYER_MAX_BODY_BYTES"
        return refusal(request.path, error.status, "request_too_large", sentence)
    except web.HTTPException as error:
        return refusal(request.path, error.status, "http", f"{request.method} {request.path}: {error.reason}")


def as_json(record: object) -> web.Response:
    """Answer with a record."""
    return web.Response(body=msgspec.json.encode(record), content_type="application/json")
