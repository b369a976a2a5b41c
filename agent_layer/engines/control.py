"""Control of one inference engine: probe what it serves, load new weights or a LoRA adapter.

Pause, reload, reset and resume are the portable core of vLLM's endpoints for reinforcement learning. Only trainers call
them; the gateway never forwards them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import cast
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

from agent_layer.errors import BadInputError, EngineError, UnreachableError
from agent_layer.schema import JsonObject, as_json_object, as_json_objects

OPENER = OpenerDirector()
"""Opener for requests to engines that are no calls of agents; no redirects, no proxies: an engine itself answers."""
for _handler in (HTTPHandler(), HTTPSHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
    OPENER.add_handler(_handler)

ADAPTER_FILE = "adapter_config.json"
"""File that marks a directory as a LoRA adapter in PEFT's form; one with whole weights has none."""
_ADAPTER_SUFFIX = "-lora"
_HINT = "a vLLM server needs VLLM_SERVER_DEV_MODE=1 for its control endpoints"


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's own answer to a probe."""

    model: str
    """Name of the served model."""
    location: str
    """Where its first weights come from."""


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
        model = self._served()[0]["id"]
        self.pause()
        if (directory / ADAPTER_FILE).is_file():
            model = f"{model}{_ADAPTER_SUFFIX}"
            self.load_adapter(model, directory)
        else:
            self.reload(directory)
        self.reset_cache()
        self.resume()
        return model

    def pause(self) -> None:
        """Hold new calls and wait for the running ones."""
        self._post("/pause?mode=wait")

    def reload(self, directory: Path) -> None:
        """Read weights from a directory that has the same name on the engine's machine."""
        self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}})

    def load_adapter(self, name: str, directory: Path) -> None:
        """Serve the model with this adapter under a name; it replaces the adapter of the same name."""
        adapter = {"lora_name": name, "lora_path": str(directory), "load_inplace": True}
        hint = (
            "a vLLM server takes adapters with --enable-lora, --max-lora-rank and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1;"
            " 'lora: {publish: merged}' sends it whole weights"
        )
        self._send("POST", "/v1/load_lora_adapter", msgspec.json.encode(adapter), hint)

    def reset_cache(self) -> None:
        """Drop cached prompts, which other weights computed."""
        self._post("/reset_prefix_cache")

    def resume(self) -> None:
        """Accept calls again."""
        self._post("/resume")

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
        model = served[0]["id"]
        question = {"model": model, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
        answer = self._post("/v1/chat/completions", question | {"return_token_ids": True, "logprobs": True})
        _check_tokens(self.url, answer)
        return EngineReport(model=model, location=served[0].get("root") or model)

    def read_context_tokens(self) -> int | None:
        """Return how many tokens a prompt and its answer may have together; None: the engine does not say.

        Raises: EngineError: it lists no models. UnreachableError: it does not answer.
        """
        found = [served.get("max_model_len") for served in cast("list[JsonObject]", self._served())]
        return next((length for length in found if isinstance(length, int)), None)

    def _served(self) -> list[dict[str, str]]:
        """Return what it lists: its model first, then adapters."""
        served = cast("list[dict[str, str]]", self._send("GET", "/v1/models").get("data") or [])
        if not served:
            raise EngineError(f"engine {self.url}: expected a model to be served, found none; start it with a model")
        return served

    def _post(self, path: str, body: Mapping[str, object] | None = None) -> JsonObject:
        return self._send("POST", path, msgspec.json.encode(body or {}))

    def _send(self, method: str, path: str, body: bytes | None = None, hint: str = _HINT) -> JsonObject:
        headers = {"Content-Type": "application/json"}
        if self.access_key is not None:
            headers |= {"Authorization": f"Bearer {self.access_key}"}
        request = Request(self.url + path, body, headers, method=method)
        try:
            with OPENER.open(request, timeout=self.timeout_seconds) as response:
                answer = response.read()
        except HTTPError as error:
            reply = error.read(400).decode("utf-8", "replace")
            raise EngineError(
                f"engine {self.url}: {method} {path} should succeed, but answered {error.code} ({reply}); {hint}"
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
    except msgspec.DecodeError:
        return {}


def _check_tokens(url: str, answer: JsonObject) -> None:
    choice = cast("list[JsonObject]", answer.get("choices") or [{}])[0]
    found = {"prompt_token_ids": answer.get("prompt_token_ids"), "token_ids": choice.get("token_ids")}
    found["logprobs"] = choice.get("logprobs")
    if missing := [name for name, value in found.items() if not value]:
        raise EngineError(
            f"engine {url}: training needs token ids and log-probabilities, but its answer has no"
            f" {', '.join(missing)}; use vLLM 0.24 or later, which returns them for 'return_token_ids': true"
        )
