"""A fast engine with canned answers: vLLM's form, ids and log-probabilities, made once.

``python canned_engine.py PORT``. Its answer depends on the request: ``max_tokens`` and ``stream`` in the body,
and one prompt id for every four bytes of it.
"""

import asyncio
import json
import re
import sys
from functools import cache

EVENT_SECONDS = 0.001
"""Between two tokens of a stream. vLLM sends each in a write of its own, so a proxy that keeps up sees them singly."""
_LENGTH = re.compile(rb"content-length: ?(\d+)", re.IGNORECASE)
_NUM_TOKENS = re.compile(rb'"max_tokens": ?(\d+)')
_STREAM = re.compile(rb'"stream": ?true')
_PROMPT_STEP = 256


class Connection(asyncio.Protocol):
    """One client, whose requests are answered in turn."""

    def __init__(self):
        self._received = b""
        self._streams = set()

    def connection_made(self, transport: asyncio.Transport):
        self._transport = transport

    def data_received(self, received):
        self._received += received
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = int(found[1]) if blank and (found := _LENGTH.search(head)) else 0
        if blank and len(body) >= length:
            self._received = body[length:]
            self._answer(body[:length])

    def _answer(self, body):
        request = _NUM_TOKENS.search(body)
        num_prompt = max(1, len(body) // 4 // _PROMPT_STEP) * _PROMPT_STEP
        num_tokens = int(request[1]) if request else 1
        if _STREAM.search(body):
            stream = asyncio.ensure_future(self._stream(make_stream(num_prompt, num_tokens)))
            self._streams.add(stream)
            stream.add_done_callback(self._streams.discard)
        else:
            self._transport.write(make_whole(num_prompt, num_tokens))

    async def _stream(self, pieces):
        for piece in pieces:
            self._transport.write(piece)
            await asyncio.sleep(EVENT_SECONDS)


@cache
def make_whole(num_prompt: int, num_tokens: int) -> bytes:
    """A whole answer, head included."""
    choice = {"index": 0, "message": {"role": "assistant", "content": _text(num_tokens)}}
    choice |= {"logprobs": {"content": [_entry(number) for number in range(num_tokens)]}, "finish_reason": "stop"}
    choice |= {"stop_reason": None, "token_ids": list(range(1000, 1000 + num_tokens))}
    usage = {"prompt_tokens": num_prompt, "completion_tokens": num_tokens, "total_tokens": num_prompt + num_tokens}
    attributes = {
        **_named("chat.completion"),
        "choices": [choice],
        "usage": usage,
        "prompt_token_ids": _prompt(num_prompt),
    }
    body = json.dumps(attributes, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@cache
def make_stream(num_prompt: int, num_tokens: int) -> list[bytes]:
    """A streamed answer, as it is written."""
    opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    first = {**_named("chat.completion.chunk"), "choices": [opening], "prompt_token_ids": _prompt(num_prompt)}
    events = [_event(first), *[_event(_chunk(number, num_tokens)) for number in range(num_tokens)]]
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in [*events, b"data: [DONE]\n\n"]]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *chunks, b"0\r\n\r\n"]


def _chunk(number, num_tokens):
    reason = "stop" if number == num_tokens - 1 else None
    choice = {"index": 0, "delta": {"content": _word(number)}, "logprobs": {"content": [_entry(number)]}}
    choice |= {"finish_reason": reason, "token_ids": [1000 + number]}
    return {**_named("chat.completion.chunk"), "choices": [choice]}


def _named(kind):
    return {"id": "chatcmpl-9f86d081884c7d65", "object": kind, "created": 1763680000, "model": "policy"}


def _event(expected):
    return b"data: " + json.dumps(expected, separators=(",", ":")).encode() + b"\n\n"


def _entry(number):
    word = _word(number)
    return {"token": word, "logprob": -(number % 97) / 53, "bytes": list(word.encode()), "top_logprobs": []}


def _word(number):
    return f" w{number % 100:02d}"


def _text(num_tokens):
    return "".join(_word(number) for number in range(num_tokens))


def _prompt(num_prompt):
    return list(range(20000, 20000 + num_prompt))


async def serve(port: int) -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
