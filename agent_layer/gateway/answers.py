"""This file holds how errors reach clients: in OpenAI's shape, so that every SDK shows the sentence."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from aiohttp import web

from agent_layer.errors import (
    AgentLayerError,
    BackPressureError,
    BadInputError,
    EngineError,
    NotFoundError,
    NotWholeError,
    UnreachableError,
)

__all__ = ["RefusedError", "answer_errors", "as_json", "error_body", "refusal"]

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS: dict[type[AgentLayerError], int] = {
    BadInputError: 400,
    NotFoundError: 404,
    NotWholeError: 409,
    BackPressureError: 503,
    EngineError: 502,
    UnreachableError: 502,
}


class RefusedError(Exception):
    """A request that is answered with an error, for a reason that only the gateway knows."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into answers with one sentence."""
    try:
        return await handler(request)
    except RefusedError as error:
        return refusal(error.status, error.code, error.message)
    except AgentLayerError as error:
        return refusal(_STATUS.get(type(error), 500), type(error).__name__, str(error))
    except web.HTTPException as error:
        return refusal(error.status, "http", f"{request.method} {request.path}: {error.reason}")


def refusal(status: int, code: str, message: str) -> web.Response:
    """Answer with an error; SDKs are told not to try again what will not change."""
    headers = {"x-should-retry": "false"} if code in ("rollout_limit", "rollout_closed") else None
    return web.Response(status=status, body=error_body(code, message), content_type="application/json", headers=headers)


def error_body(code: str, message: str) -> bytes:
    """Give OpenAI's form of an error."""
    return msgspec.json.encode({"error": {"message": message, "type": code, "code": code, "param": None}})


def as_json(record: object) -> web.Response:
    """Answer with a record."""
    return web.Response(body=msgspec.json.encode(record), content_type="application/json")
