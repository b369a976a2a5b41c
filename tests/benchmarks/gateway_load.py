"""Clients of the gateway's benchmark: their requests, and the duration of each call."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from aiohttp import ClientSession, TCPConnector
from proxies import Door

__all__ = ["CALLS_PER_ROLLOUT", "Load", "ask_all", "ask_evenly"]

CALLS_PER_ROLLOUT = 8
_WORDS = "the quick brown fox jumps over the lazy dog and runs away "
_MESSAGE_BYTES = 1500
_numbers = count()


@dataclass(frozen=True)
class Load:
    """One kind of call."""

    prompt_bytes: int
    num_tokens: int
    is_streamed: bool

    @property
    def name(self) -> str:
        """How a row of the table begins."""
        how = "streamed" if self.is_streamed else "whole"
        return f"{self.prompt_bytes >> 10} KB prompt, {self.num_tokens:,} tokens {how}"

    def body(self) -> bytes:
        """Return a request with a new last message; the others are the history that a rollout repeats."""
        num_messages = max(1, self.prompt_bytes // _MESSAGE_BYTES)
        texts = [f"{index} {_text(self.prompt_bytes // num_messages - 60)}" for index in range(num_messages)]
        roles = ("user", "assistant")
        messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
        messages.append({"role": "user", "content": f"question {next(_numbers)}"})
        fields = {"model": "policy", "messages": messages, "max_tokens": self.num_tokens, "temperature": 1.0}
        return json.dumps(fields | {"stream": self.is_streamed}).encode()


async def ask_all(load: Load, doors: Sequence[Door], num_clients: int = 8) -> list[float]:
    """Make eight calls through each door, a few clients at a time; give the seconds of each call."""
    waiting = iter([door for door in doors for _ in range(CALLS_PER_ROLLOUT)])
    async with _session() as session:
        answer = await asyncio.gather(*(_ask_in_turn(session, load, waiting) for _ in range(num_clients)))
    return [seconds for one in answer for seconds in one]


async def ask_evenly(load: Load, doors: Sequence[Door], num_calls: int, per_second: float) -> list[float]:
    """Begin ``per_second`` calls a second, whether or not earlier ones ended, by turns through all doors."""
    began, calls = time.perf_counter(), list[asyncio.Task[float]]()
    async with _session() as session:
        for number in range(num_calls):
            await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
            calls.append(asyncio.create_task(_ask(session, load, doors[number % len(doors)])))
        return list(await asyncio.gather(*calls))


async def _ask_in_turn(session: ClientSession, load: Load, waiting: Iterator[Door]) -> list[float]:
    return [await _ask(session, load, door) for door in waiting]


async def _ask(session: ClientSession, load: Load, door: Door) -> float:
    headers = {"content-type": "application/json", "authorization": f"Bearer {door.key}"}
    body, began = load.body(), time.perf_counter()
    async with session.post(f"{door.url}/chat/completions", data=body, headers=headers) as reply:
        answer = await reply.read()
    if reply.status != 200:
        raise RuntimeError(f"{door.url}: expected an answer, found {reply.status} {answer[:500]!r}")
    return time.perf_counter() - began


def _session() -> ClientSession:
    return ClientSession(connector=TCPConnector(limit=0), read_bufsize=1 << 20)


def _text(num_bytes: int) -> str:
    return (_WORDS * (num_bytes // len(_WORDS) + 1))[:num_bytes]
