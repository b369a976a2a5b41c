"""A teacher: an engine that judges tokens which another model sampled. It needs no control endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final, TypeVar
from urllib.error import HTTPError
from urllib.request import Request

import msgspec

from agent_layer.engines.control import OPENER, read_model_list
from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.schema import UNREADABLE, Logprobs, TokenIds

_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed later."""


class _TokenLogprob(msgspec.Struct):
    logprob: float


class _Choice(msgspec.Struct):
    prompt_logprobs: list[dict[str, _TokenLogprob] | None] | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []


class _Text(msgspec.Struct):
    prompt: str


_Answer = TypeVar("_Answer", bound=msgspec.Struct)


@dataclass(frozen=True)
class TeacherEngine:
    """One model of a vLLM server at ``url`` (no trailing slash, no /v1)."""

    url: str
    model: str
    api_key: str | None = None
    timeout_seconds: float = 600.0
    noun: str = "teacher"
    """What errors call it."""

    def check_model(self) -> None:
        """Raise unless the server lists the model.

        Raises: BadInputError: it has other models, or refuses the key. UnreachableError: it does not answer.
        """
        names = read_model_list(self.url, self.api_key, key_names="AGENT_LAYER_TEACHER_KEY")
        if self.model not in names:
            raise BadInputError(
                f"teacher {self.url}: expected the model {self.model!r}, found {', '.join(names) or 'none'}; correct"
                " algorithm.distill.teacher"
            )

    def score(self, token_ids: TokenIds) -> Logprobs:
        """Return the log-probability of each token but the first, given the tokens before it, at temperature 1.

        vLLM computes the log-probabilities of a prompt before anything that sampling does to them. A request for them
        reads no cached prefix, because that would leave out its tokens.

        Args:
            token_ids: at least two.

        Returns: [num_tokens - 1].

        Raises:
            EngineError: it refuses the tokens, such as too many, or returns no log-probabilities of prompts.
            UnreachableError: it does not answer, or is too busy.
        """
        body = {"prompt": list(token_ids), "max_tokens": 1, "prompt_logprobs": 0, "temperature": 1.0}
        answer = self.post("/v1/completions", body, _Completion)
        scored = answer.choices[0].prompt_logprobs if answer.choices else None
        found = [
            one[str(token_id)].logprob
            for token_id, one in zip(token_ids, scored or (), strict=False)
            if one is not None and str(token_id) in one
        ]
        if len(found) != len(token_ids) - 1:
            raise EngineError(
                f"{self.noun} {self.url}: expected a log-probability for each of {len(token_ids) - 1} tokens behind the"
                f" first, found {len(found)}; use vLLM, whose completions take 'prompt_logprobs'"
            )
        return Logprobs(found)

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of tokens.

        Raises: EngineError: it has no such route. UnreachableError: it does not answer, or is too busy.
        """
        return self.post("/detokenize", {"tokens": token_ids}, _Text).prompt

    def post(self, path: str, body: Mapping[str, object], kind: type[_Answer]) -> _Answer:
        """Return the answer to a request for its model.

        Raises: EngineError: it refuses, or answers otherwise. UnreachableError: it does not answer, or is too busy.
        """
        headers = {"Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        content = msgspec.json.encode({"model": self.model, **body})
        try:
            with OPENER.open(Request(self.url + path, content, headers), timeout=self.timeout_seconds) as response:
                return msgspec.json.decode(response.read(), type=kind)
        except HTTPError as error:
            with error:
                reply = error.read(400).decode("utf-8", "replace")
            raise (UnreachableError if error.code in _BUSY else EngineError)(
                f"{self.noun} {self.url}: POST {path} should succeed, but answered {error.code} ({reply})"
            ) from error
        except UNREADABLE as error:
            raise EngineError(
                f"{self.noun} {self.url}: expected vLLM's answer to POST {path}, found {error}"
            ) from error
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"{self.noun} {self.url}: expected an answer to POST {path}, found {error!r}; is it running?"
            ) from error
