"""A teacher for tests: answers as vLLM does, each token's log-probability follows from all tokens up to it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aiohttp import web
from tokenizers import Tokenizer

__all__ = ["ScriptedTeacher", "judge"]


def judge(before: Sequence[int], token: int) -> float:
    """Return the log-probability of a token behind others; another token or context gives another."""
    mixed = 17
    for one in (*before, -1, token):
        mixed = (mixed * 31 + one + 2) % 10_007
    return -0.05 - mixed / 2000


class ScriptedTeacher:
    """A server with one model; ``serve_in_thread`` gives it a URL."""

    def __init__(self, model: Path, name: str = "teacher") -> None:
        self.url = ""
        self.name = name
        self.key: str | None = None
        """That it asks for."""
        self.tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self.requests: list[list[int]] = []
        """Rows, in the order in which they came."""
        self.refuses: Callable[[list[int]], int | None] = lambda _: None
        """Called with each row: the status with which it is refused; None: it is answered."""
        self.judge = judge

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._check_key])
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.post("/detokenize", self._detokenize),
                web.post("/v1/completions", self._complete),
            ]
        )
        return app

    @web.middleware
    async def _check_key(self, request: web.Request, handler) -> web.StreamResponse:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.name, "object": "model"}]})

    async def _detokenize(self, request: web.Request) -> web.Response:
        tokens = (await request.json())["tokens"]
        return web.json_response({"prompt": self.tokenizer.decode(tokens, skip_special_tokens=False)})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        row = body["prompt"]
        assert (body["model"], body["temperature"], body["prompt_logprobs"]) == (self.name, 1.0, 0)
        self.requests.append(row)
        if status := self.refuses(row):
            return web.json_response({"error": {"message": "not this row"}}, status=status)
        scored = [
            {str(token): {"logprob": self.judge(row[:place], token), "rank": 1, "decoded_token": "x"}}
            for place, token in enumerate(row)
        ]
        choice = {"index": 0, "text": "x", "finish_reason": "length", "prompt_logprobs": [None, *scored[1:]]}
        return web.json_response({"object": "text_completion", "model": self.name, "choices": [choice]})
