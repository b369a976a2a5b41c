"""Process that captures calls of the official openai client with one library, and times them.

``capture_child.py MODULE VARIANT DIRECTORY`` reads lines ``NUM_BYTES NUM_CALLS`` and answers each with one line of
JSON. The client's transport answers from memory, so nothing but the client and what captures it takes time. Captured
and plain calls take turns in blocks, so that what the machine does besides falls on both.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

import httpx
import openai
from pydantic import BaseModel

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "policy",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "word " * 150}}],
    "usage": {"prompt_tokens": 500, "completion_tokens": 150, "total_tokens": 650},
}
BLOCK = 10
Messages = list[dict[str, str]]
Ask = Callable[[Messages], BaseModel]
Capturing = Callable[[], AbstractContextManager[Ask]]
"""Within it, the function captures the calls that it makes."""


def main() -> None:
    """Serve the rounds that the parent asks for."""
    module, variant, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    directory.mkdir(parents=True, exist_ok=True)
    client = new_client()
    plain, capturing = asking(client), importlib.import_module(module).VARIANTS[variant](directory, client)
    for line in sys.stdin:
        num_bytes, num_calls = map(int, line.split())
        print(json.dumps(measure(plain, capturing, num_bytes, num_calls)), flush=True)


def measure(plain: Ask, capturing: Capturing, num_bytes: int, num_calls: int) -> dict[str, float]:
    """Return CPU microseconds per call: the plain call, and what capture adds in this thread and in other threads."""
    plains, added = list[float](), list[float]()
    process, thread = time.process_time(), time.thread_time()
    for block in range(0, num_calls, BLOCK):
        plains.append(_time_block(plain, num_bytes, block))
        with capturing() as ask:
            added.append(_time_block(ask, num_bytes, block) - plains[-1])
    others = (time.process_time() - process) - (time.thread_time() - thread)
    return {"plain": median(plains), "added": median(added), "others": others / num_calls * 1e6}


def _time_block(ask: Ask, num_bytes: int, block: int) -> float:
    """Time calls of one agent; each asks something new, as agents do."""
    turns = [{"role": "user", "content": "x" * (num_bytes // 8)} for _ in range(7)]
    questions = [f"{block + number} {'x' * (num_bytes // 8)}" for number in range(BLOCK)]
    began = time.thread_time()
    for question in questions:
        ask([*turns, {"role": "user", "content": question}])
    return (time.thread_time() - began) / BLOCK * 1e6


def new_client() -> openai.OpenAI:
    """Make a client whose engine answers at once."""
    body = json.dumps(ANSWER).encode()
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, content=body, headers={"content-type": "application/json"})
    )
    return openai.OpenAI(base_url="http://engine/v1", api_key="k", http_client=httpx.Client(transport=transport))


def asking(client: openai.OpenAI) -> Ask:
    """Return the call that an agent makes."""
    return lambda messages: client.chat.completions.create(model="policy", messages=messages, temperature=0.7)


if __name__ == "__main__":
    main()
