"""The storm's agents: ``python agents.py DIRECTORY SEED ENGINE_URL``, settings from the environment.

The first process imports everything and traces something itself, then forks the agents. Each agent plays rollouts until
it is killed or ``DIRECTORY/stop`` exists. It notes its questions (``asked``), the answers it received whole (``saw``),
and the answers it left half-way (``left``).
"""

import faulthandler
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import httpx
import msgspec
import openai
from engine import Book

import tracer
from agent_layer.errors import AgentLayerError
from agent_layer.recorder import open_recorder
from agent_layer.settings import Settings, load_settings
from tracer.session import Session, use_session

_NUM_AGENTS = 16
_ANSWER_SECONDS = 6.0
_REST_SECONDS = 0.3
"""After a refusal."""


class RefusedError(Exception):
    """The gateway does not take this rollout's calls any more, or not now."""


class Agent:
    """One process: its random choices, its marks, its book."""

    def __init__(self, settings: Settings, engine_url: str, book: Book, chance: random.Random) -> None:
        self.settings, self.engine_url, self.book, self.chance = settings, engine_url, book, chance
        self._rest = Event()
        self._kept: list[object] = []
        """Left streams. Collected as garbage while httpcore holds its lock, they would stop the process for good."""
        self._owner, self._numbers = f"{os.getpid()}x{chance.randrange(16**6):x}", count()
        self._client = openai.OpenAI(base_url=f"{engine_url}/v1", api_key="own", max_retries=2, timeout=_ANSWER_SECONDS)
        self._direct = self._client.with_options(max_retries=0)

    def mark(self, *, is_long: bool = False) -> tuple[str, str]:
        """A new mark, noted as asked, and the question that holds it."""
        mark = f"q{self._owner}.{next(self._numbers)}"
        self.book.note("asked", mark)
        return mark, f"long {mark}" if is_long else mark

    def play(self) -> None:
        """One rollout of any kind."""
        rollout = self.chance.choices([self.play_plain, self.play_traced, self.play_alone], [10, 2, 1])[0]
        try:
            rollout()
        except (RefusedError, AgentLayerError, openai.OpenAIError, httpx.HTTPError, OSError, HTTPException) as error:
            self.book.note("gave-up", "-", repr(error)[:200].replace("\n", " "))
            self._rest.wait(_REST_SECONDS)

    # -- with the tracer, through the gateway ---------------------------------------------------------
    def play_traced(self) -> None:
        with tracer.rollout(task="t1", run="storm"):
            self._talk(self._client)
            tracer.reward(1.0)

    # -- with the tracer, without a gateway -----------------------------------------------------------
    def play_alone(self) -> None:
        alone = self.settings.model_copy(update={"gateway_url": None})
        with use_session(Session(settings=alone, sink=open_recorder(self.settings))), tracer.rollout("t2", run="storm"):
            self._talk(self._direct)

    def _talk(self, client: openai.OpenAI) -> None:
        messages: list[dict[str, str]] = []
        for _ in range(self.chance.randint(3, 12)):
            is_left = self.chance.random() < 0.1
            mark, question = self.mark(is_long=is_left)
            messages.append({"role": "user", "content": question})
            if is_left:
                stream = client.chat.completions.create(model="scripted", messages=messages, stream=True)
                next(iter(stream))
                self.book.note("left", mark)
                if self.chance.random() < 0.5:
                    stream.close()
                self._kept.append(stream)  # a reference, so that half-read streams stay open
                messages.pop()
            elif self.chance.random() < 0.4:
                stream = client.chat.completions.create(model="scripted", messages=messages, stream=True)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
                self._hear(mark, text, messages)
            else:
                answer = client.chat.completions.create(model="scripted", messages=messages)
                self._hear(mark, answer.choices[0].message.content or "", messages)

    def _hear(self, mark: str, text: str, messages: list[dict[str, str]]) -> None:
        self.book.note("saw", mark, text)
        messages.append({"role": "assistant", "content": text})

    # -- without any of our code in the agent ---------------------------------------------------------
    def play_plain(self) -> None:
        gateway = Plain(self.settings.gateway_url or "", self.settings.api_key or "")
        opened = gateway.post("/rollouts", {"task_id": "t3", "run": "storm"})
        model = Plain(opened["base_url"], opened["api_key"])
        for number in range(self.chance.randint(5, 20)):
            self.chance.choices(
                [self._ask, self._stream, self._leave, self._ask_again, self._ask_twice_at_once, self._ask_for_two],
                [6, 3, 2, 2, 1, 1],
            )[0](model, number)
        if self.chance.random() < 0.8:
            gateway.post(f"/rollouts/{opened['rollout_id']}/end", {"reward": self.chance.random()})

    def _ask(self, model: "Plain", _: int) -> None:
        mark, question = self.mark()
        self.book.note("saw", mark, model.ask(_body(question)))

    def _stream(self, model: "Plain", _: int) -> None:
        mark, question = self.mark()
        with model.open(_body(question, stream=True)) as lines:
            self.book.note("saw", mark, _heard(lines))

    def _leave(self, model: "Plain", number: int) -> None:
        """Hang up in the middle of an answer, perhaps before its first word; perhaps ask again under the same id."""
        mark, question = self.mark(is_long=True)
        call = {"x-agent-layer-call": f"left-{self._owner}-{number}-{mark}"}
        is_streamed = self.chance.random() < 0.5
        body = _body(question, stream=is_streamed)
        if is_streamed:
            with model.open(body, call) as lines:
                next(lines)
        else:
            model.ask_and_leave(body, call)
        self.book.note("left", mark)
        if self.chance.random() < 0.5:
            self.book.note("saw", mark, model.ask(body, call))

    def _ask_again(self, model: "Plain", _: int) -> None:
        """Repeat a call under its name; its answer must be repeated."""
        mark, question = self.mark()
        headers = {self.chance.choice(["x-agent-layer-call", "idempotency-key"]): f"again-{mark}"}
        for _ in range(2):
            self.book.note("saw", mark, model.ask(_body(question), headers))

    def _ask_twice_at_once(self, model: "Plain", _: int) -> None:
        mark, question = self.mark(is_long=True)

        def ask() -> None:
            try:
                self.book.note("saw", mark, model.ask(_body(question), {"idempotency-key": f"twice-{mark}"}))
            except (RefusedError, OSError, HTTPException):
                return

        threads = [Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask_for_two(self, model: "Plain", _: int) -> None:
        mark, question = self.mark()
        self.book.note("saw", mark, model.ask(_body(question, n=2)))


class Plain:
    """HTTP as any program might speak it."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._netloc, self._path = parts.netloc, parts.path
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def post(self, path: str, body: dict[str, object]) -> dict[str, str]:
        connection = self._send(path, body, {})
        try:
            reply = connection.getresponse()
            content = reply.read()
            if reply.status != 200:
                raise RefusedError(f"{reply.status} {content[:300]!r}")
            return msgspec.json.decode(content)
        finally:
            connection.close()

    def ask(self, body: dict[str, object], headers: dict[str, str] | None = None) -> str:
        """A chat completion's first text, streamed or not."""
        with self.open(body, headers or {}) as lines:
            first = next(lines)
            if first.startswith(b"{"):
                return msgspec.json.decode(first)["choices"][0]["message"]["content"]
            return _heard(lines, first)

    def ask_and_leave(self, body: dict[str, object], headers: dict[str, str]) -> None:
        self._send("/chat/completions", body, headers).close()

    @contextmanager
    def open(self, body: dict[str, object], headers: dict[str, str] | None = None) -> Iterator[Iterator[bytes]]:
        """Lines of an answer; leaving the block hangs up."""
        connection = self._send("/chat/completions", body, headers or {})
        try:
            reply = connection.getresponse()
            if reply.status != 200:
                raise RefusedError(f"{reply.status} {reply.read()[:300]!r}")
            yield iter(reply)
            reply.close()
        finally:
            connection.close()

    def _send(self, path: str, body: dict[str, object], headers: dict[str, str]) -> HTTPConnection:
        connection = HTTPConnection(self._netloc, timeout=_ANSWER_SECONDS)
        connection.request("POST", self._path + path, msgspec.json.encode(body), self._headers | headers)
        return connection


def _body(question: str, **more: object) -> dict[str, object]:
    return {"model": "any", "messages": [{"role": "user", "content": question}], **more}


def _heard(lines: Iterator[bytes], first: bytes = b"") -> str:
    """Text of a stream that came to its end."""
    text, is_whole = "", False
    for line in (first, *lines):
        if line.startswith(b"data: [DONE]"):
            is_whole = True
        elif line.startswith(b"data: "):
            chunk = msgspec.json.decode(line[6:])
            if "error" in chunk:
                raise RefusedError(str(chunk["error"]))
            text += chunk["choices"][0]["delta"].get("content") or ""
    if not is_whole:
        raise RefusedError("the stream ended early")
    return text


def fork(play: Callable[[], None]) -> int:
    """Run something in a child; half of the children end without any clean-up."""
    if pid := os.fork():
        return pid
    play()
    if os.getpid() % 2:
        os._exit(0)
    sys.exit(0)


def main(directory: str, seed: str, engine_url: str) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    settings, stop, chance = load_settings(), Path(directory) / "stop", random.Random(int(seed))
    book = Book(f"{directory}/agents.book")
    tracer.init(settings)
    Agent(settings, engine_url, book, chance).play_alone()  # so that a recorder with a thread is forked
    children: set[int] = set()
    while not stop.exists() or children:
        while len(children) < _NUM_AGENTS and not stop.exists():
            own = random.Random(chance.random())

            def play_some(own: random.Random = own) -> None:
                agent = Agent(settings, engine_url, book, own)
                for _ in range(own.randint(5, 40)):
                    if not stop.exists():
                        agent.play()

            children.add(fork(play_some))
        ended, _ = os.waitpid(-1, 0)
        children.discard(ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
