"""Control of one inference engine: probe what it serves, load new weights or a LoRA adapter.

How that is done depends on its kind. Only trainers call control endpoints; the gateway never forwards them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

import msgspec

from agent_layer.engines.kinds import EngineKind, KindName, find_kind
from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.schema import UNREADABLE, JsonObject, as_json_object, as_json_objects

OPENER = OpenerDirector()
"""Opener for requests to engines that are no calls of agents; no redirects, no proxies: an engine itself answers."""
for _handler in (HTTPHandler(), HTTPSHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
    OPENER.add_handler(_handler)


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's own answer to a probe."""

    model: str
    """Name of the served model."""
    location: str
    """Where its first weights come from."""
    kind: KindName
    adapter: str | None = None
    """Name of the adapter of that model that it lists first; None: it lists none."""


@dataclass(frozen=True)
class EngineControl:
    """Control of the engine at ``url`` (no trailing slash, no /v1)."""

    url: str
    timeout_seconds: float = 120.0
    access_key: str | None = field(default=None, repr=False)
    """Bearer key of each request; None: the engine asks for none."""

    def load(self, directory: Path) -> str:
        """Load the weights in ``directory`` (safetensors and config), or the adapter of the model that it serves.

        Waits for running calls; calls that arrive meanwhile wait inside the engine. Nothing cached under the old
        weights survives. After an error the engine may hold half of the weights: load again before it serves.

        Returns: the model that calls must name.
        Raises: EngineError: it refused a step. UnreachableError: it does not answer.
        """
        served = self._served()
        return find_kind(served).load(self._send, served, directory)

    def is_healthy(self) -> bool:
        """Whether the engine answers."""
        try:
            self._send("GET", "/health")
        except (EngineError, UnreachableError):
            return False
        return True

    def probe(self) -> EngineReport:
        """Return which model it serves, after one token shows that it returns token ids and log-probabilities.

        Raises: EngineError: it serves no model, or cannot return them. UnreachableError: it does not answer.
        """
        served = self._served()
        model, kind = str(served[0]["id"]), find_kind(served)
        question = {"model": model, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
        tokens = {"return_token_ids": True, "logprobs": True}
        answer = self._send("POST", "/v1/chat/completions", question | tokens)
        if missing := kind.find_missing_tokens(answer):
            raise EngineError(
                f"engine {self.url}: training needs token ids and log-probabilities, but its answer has no"
                f" {', '.join(missing)}; {kind.remedy}"
            )
        location = kind.locate_weights(self._send, served[0])
        adapter = next((str(one["id"]) for one in served[1:] if one.get("parent") == model), None)
        return EngineReport(model=model, location=location, kind=kind.name, adapter=adapter)

    def find_kind(self) -> EngineKind:
        """Return its kind by its list of models.

        Raises: EngineError: it lists no models. UnreachableError: it does not answer.
        """
        return find_kind(self._served())

    def read_context_tokens(self) -> int | None:
        """Return how many tokens a prompt and its answer may have together; None: the engine does not say.

        Raises: EngineError: it lists no models. UnreachableError: it does not answer.
        """
        found = [served.get("max_model_len") for served in self._served()]
        return next((length for length in found if isinstance(length, int)), None)

    def _served(self) -> list[JsonObject]:
        """Return what it lists: its model first, then adapters."""
        served = as_json_objects(self._send("GET", "/v1/models").get("data"))
        if not served or not isinstance(served[0].get("id"), str):
            raise EngineError(f"engine {self.url}: expected a model to be served, found none; start it with a model")
        return served

    def _send(self, method: str, path: str, body: Mapping[str, object] | None = None, hint: str = "") -> JsonObject:
        """See ``kinds.Send``."""
        content = None if method == "GET" else msgspec.json.encode(body or {})
        headers = {"Content-Type": "application/json"}
        if self.access_key is not None:
            headers |= {"Authorization": f"Bearer {self.access_key}"}
        request = Request(self.url + path, content, headers, method=method)
        try:
            with OPENER.open(request, timeout=self.timeout_seconds) as response:
                answer = response.read()
        except HTTPError as error:
            with error:
                reply = error.read(400).decode("utf-8", "replace")
            raise EngineError(
                f"engine {self.url}: {method} {path} should succeed, but answered {error.code} ({reply});"
                f" {hint or 'is it an engine, and are its address and key correct?'}"
            ) from error
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"engine {self.url}: expected an answer to {method} {path}, found {error}; is it running?"
            ) from error
        return _as_object(answer)


def read_model_list(
    url: str,
    api_key: str | None,
    timeout_seconds: float = 30.0,
    key_names: str = "AGENT_LAYER_POLICY_KEY or OPENAI_API_KEY",
) -> list[str]:
    """Return the names of the models that an OpenAI-compatible server lists; empty where it has no list.

    Args:
        url: without /v1.
        api_key: of the server; None: it needs none.
        timeout_seconds: longest wait.
        key_names: variables that may hold the key, for the error.

    Raises: BadInputError: it refuses the key. UnreachableError: it does not answer.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with OPENER.open(Request(f"{url}/v1/models", headers=headers), timeout=timeout_seconds) as response:
            listed = _as_object(response.read())
    except HTTPError as error:
        error.close()
        if error.code not in (401, 403):
            return []
        found = "refused this key" if api_key else "asks for a key"
        raise BadInputError(
            f"model {url}: expected access, but the server {found} (status {error.code}); set {key_names} to a key of"
            " that server"
        ) from error
    except (OSError, HTTPException) as error:
        raise UnreachableError(f"model {url}: expected an answer, found {error}; check the address") from error
    names = [as_json_object(one).get("id") for one in as_json_objects(listed.get("data"))]
    return [name for name in names if isinstance(name, str)]


def _as_object(answer: bytes) -> JsonObject:
    try:
        return msgspec.json.decode(answer or b"{}", type=JsonObject)
    except UNREADABLE:
        return {}
