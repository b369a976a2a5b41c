"""A server on Ray refuses all that comes without its key, whatever it asks for. Driven as ASGI; no vLLM starts."""

import asyncio

import pytest

from trainer_adapter.cluster.key import RequireKey, access_key

RIGHT = b"Bearer " + access_key().encode()
WRONG = {
    "none": [],
    "another": [(b"authorization", b"Bearer " + b"x" * len(access_key()))],
    "a longer one": [(b"authorization", RIGHT + b"x")],
    "an empty one": [(b"authorization", b"Bearer ")],
    "another scheme": [(b"authorization", RIGHT.replace(b"Bearer", b"Basic"))],
    "without a scheme": [(b"authorization", access_key().encode())],
    "in another header": [(b"x-api-key", access_key().encode())],
    "two": [(b"authorization", RIGHT), (b"authorization", b"Bearer other")],
    "no text": [(b"authorization", b"Bearer \xff\x00")],
}


def ask(scope):
    """Return what the server sends, and whether the application behind saw the request."""
    sent, seen = [], []

    async def app(scope, *_):
        seen.append(scope)

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("the body of a refused request was read")

    asyncio.run(RequireKey(app)(scope, receive, send))
    return sent, bool(seen)


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/pause", "/no-such-route"])
def test_a_request_without_the_key_is_refused(path, method, headers):
    sent, is_seen = ask({"type": "http", "method": method, "path": path, "headers": headers})

    assert (sent[0]["status"], is_seen) == (401, False)
    assert b"invalid_api_key" in sent[1]["body"]
    assert access_key().encode() not in sent[1]["body"]


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG.keys())
def test_a_websocket_without_the_key_is_refused(headers):
    sent, is_seen = ask({"type": "websocket", "path": "/v1/realtime", "headers": headers})

    assert ([one["type"] for one in sent], is_seen) == (["websocket.close"], False)


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_with_the_key_the_application_answers(kind, scheme):
    headers = [(b"accept", b"*/*"), (b"authorization", RIGHT.replace(b"Bearer", scheme))]

    assert ask({"type": kind, "method": "GET", "path": "/", "headers": headers}) == ([], True)


def test_the_start_of_the_application_needs_no_key():
    assert ask({"type": "lifespan"}) == ([], True)
