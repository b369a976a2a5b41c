"""Kinds of engines: how each is recognised, asked for tokens, given weights, and read.

The gateway's own words for an engine are vLLM's. Any server that speaks them counts as vLLM, unless its list of models
names another owner. A kind tells where it differs.

SGLang follows the source of its version 0.5.23 (paths below ``python/sglang/srt``); no server of it has run here yet.

* Tokens: ``return_token_ids`` of ``/v1/chat/completions`` returns the rendered prompt and the sampled ids of a whole
  answer (``entrypoints/openai/protocol.py``, ``serving_chat.py``). A stream refuses it. The ids at the end of a stream
  would not help: without a parser, a stream drops the log-probability of each step that adds no text, such as the end
  of turn. So the gateway asks for whole answers, also where its client reads a stream.
* Log-probabilities are those at the temperature (``layers/sampler.py``), unless SGLANG_RETURN_ORIGINAL_LOGPROB is set.
* Aborting: a closed connection ends its request, within four seconds where nothing is streamed
  (``managers/tokenizer_manager.py``, ``_wait_one_response``).
* Health: ``/ping`` reads a flag; ``/health`` samples a token, which takes a second and more (``http_server.py``).
* Weights: ``/update_weights_from_disk`` waits for running requests and holds new ones, then flushes the cache
  (``tokenizer_manager.py``, ``model_update_lock``). From then on the server names its model by that directory.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Protocol, TypeAlias

from agent_layer.schema import JsonObject, as_json_object, as_json_objects

KindName: TypeAlias = Literal["vllm", "sglang"]
LogprobsMode: TypeAlias = Literal["raw", "processed"]
GaugeName: TypeAlias = Literal["running", "waiting", "cache_usage"]

ADAPTER_FILE = "adapter_config.json"
"""File that marks a directory as a LoRA adapter in PEFT's form; one with whole weights has none."""
ADAPTER_SUFFIX = "-lora"
"""End of an adapter's name in vLLM, behind the name of its model."""
_SGLANG_ADAPTER = "policy-lora"


class Send(Protocol):
    """Sends a request to one engine.

    Raises: EngineError: the engine refuses it. UnreachableError: it does not answer.
    """

    def __call__(self, method: str, path: str, body: Mapping[str, object] | None = None, hint: str = "") -> JsonObject:
        """Return the JSON object that it answers; empty where it answers something else."""
        ...


class EngineKind(Protocol):
    """How engines of one make are used."""

    @property
    def name(self) -> KindName:
        """Name in the registry."""
        ...

    @property
    def owner(self) -> str:
        """Owner of its models, as its ``/v1/models`` names it."""
        ...

    @property
    def evidence(self) -> str:
        """What our knowledge of it stands on; empty: it runs in our tests."""
        ...

    @property
    def streams_ids(self) -> bool:
        """Whether each event of a stream has the ids and log-probabilities of its tokens; False: it is asked whole."""
        ...

    @property
    def health_path(self) -> str:
        """Address that answers 200 at once while it can take calls."""
        ...

    @property
    def logprobs_mode(self) -> LogprobsMode | None:
        """What its log-probabilities are; None: its operator chooses, and the settings say."""
        ...

    @property
    def unread_fields(self) -> frozenset[str]:
        """Fields that agents may ask of some engine, and that this kind ignores."""
        ...

    @property
    def gauges(self) -> Mapping[str, GaugeName]:
        """What its ``/metrics`` reports of its load, by the metric's name."""
        ...

    @property
    def remedy(self) -> str:
        """What to do when an answer has no token ids or log-probabilities."""
        ...

    def find_missing_tokens(self, answer: JsonObject) -> list[str]:
        """Return which members, needed for training, a whole answer to ``return_token_ids`` and ``logprobs`` lacks."""
        ...

    def locate_weights(self, send: Send, model: JsonObject) -> str:
        """Return where its weights come from.

        Args:
            send: to the engine.
            model: its first entry in ``/v1/models``.
        """
        ...

    def load(self, send: Send, served: list[JsonObject], directory: Path) -> str:
        """Load weights, or an adapter of them, between calls; nothing cached under the old ones survives.

        Args:
            send: to the engine.
            served: its list of models, the base model first.
            directory: has the same name on the engine's machine.

        Returns: the model that calls must name.
        """
        ...


class VllmKind:
    """vLLM, from 0.24 on."""

    name: KindName = "vllm"
    owner: str = "vllm"
    evidence: str = ""
    streams_ids: bool = True
    health_path: str = "/health"
    logprobs_mode: LogprobsMode | None = None
    unread_fields: frozenset[str] = frozenset(
        {"guided_choice", "guided_grammar", "guided_json", "guided_regex"}  # which vLLM 0.12 removed
        | {"ebnf", "json_schema", "no_stop_trim", "regex", "separate_reasoning", "stream_reasoning", "structural_tag"}
    )
    gauges: Mapping[str, GaugeName] = MappingProxyType(
        {
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
            "vllm:kv_cache_usage_perc": "cache_usage",
        }
    )
    remedy: str = "use vLLM 0.24 or later, which returns them for 'return_token_ids': true"

    def find_missing_tokens(self, answer: JsonObject) -> list[str]:
        """See EngineKind."""
        choice = _first(answer.get("choices"))
        found = {"prompt_token_ids": answer.get("prompt_token_ids"), "token_ids": choice.get("token_ids")}
        return _list_absent(found | {"logprobs": choice.get("logprobs")})

    def locate_weights(self, send: Send, model: JsonObject) -> str:  # noqa: ARG002  # its list of models says it
        """See EngineKind."""
        return str(model.get("root") or model["id"])

    def load(self, send: Send, served: list[JsonObject], directory: Path) -> str:
        """See EngineKind."""
        control = "a vLLM server needs VLLM_SERVER_DEV_MODE=1 for its control endpoints"
        model = str(served[0]["id"])
        send("POST", "/pause?mode=wait", hint=control)
        if (directory / ADAPTER_FILE).is_file():
            model = f"{model}{ADAPTER_SUFFIX}"
            adapter = {"lora_name": model, "lora_path": str(directory), "load_inplace": True}
            hint = (
                "a vLLM server takes adapters with --enable-lora, --max-lora-rank and"
                " VLLM_ALLOW_RUNTIME_LORA_UPDATING=1; 'lora: {publish: merged}' sends it whole weights"
            )
            send("POST", "/v1/load_lora_adapter", adapter, hint)
        else:
            weights = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
            send("POST", "/collective_rpc", weights, control)
        send("POST", "/reset_prefix_cache", hint=control)
        send("POST", "/resume", hint=control)
        return model


class SglangKind:
    """SGLang; see the head of this file."""

    name: KindName = "sglang"
    owner: str = "sglang"
    evidence: str = "SGLang: from its source at version 0.5.23, not yet run by us"
    streams_ids: bool = False
    health_path: str = "/ping"
    logprobs_mode: LogprobsMode | None = "processed"
    unread_fields: frozenset[str] = frozenset(
        """
        add_special_tokens allowed_token_ids bad_words documents echo guided_choice guided_grammar guided_json
        guided_regex include_reasoning include_stop_str_in_output json_schema length_penalty logprob_token_ids
        prompt_logprobs repetition_detection return_tokens_as_token_ids routed_experts_prompt_start
        spaces_between_special_tokens structural_tag structured_outputs thinking_token_budget truncate_prompt_tokens
        truncation_side use_beam_search
        """.split()  # noqa: SIM905  # a list of strings would take thirty lines
    )
    gauges: Mapping[str, GaugeName] = MappingProxyType(
        {
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
            "sglang:token_usage": "cache_usage",
        }
    )
    """Reported under --enable-metrics (``observability/metrics_collector.py``)."""
    remedy: str = "use SGLang 0.5.23 or later, which returns them for 'return_token_ids': true and 'logprobs': true"

    def find_missing_tokens(self, answer: JsonObject) -> list[str]:
        """See EngineKind."""
        choice = _first(answer.get("choices"))
        sampled = choice.get("response_token_ids") or choice.get("token_ids")
        found = {"prompt_token_ids": choice.get("prompt_token_ids"), "response_token_ids": sampled}
        return _list_absent(found | {"logprobs": choice.get("logprobs")})

    def locate_weights(self, send: Send, model: JsonObject) -> str:
        """See EngineKind. Its list of models may have another name (--served-model-name)."""
        return str(send("GET", "/model_info").get("model_path") or model.get("root") or model["id"])

    def load(self, send: Send, served: list[JsonObject], directory: Path) -> str:
        """See EngineKind. Requests name an adapter as ``model:adapter`` (``serving_base.py``)."""
        if not (directory / ADAPTER_FILE).is_file():
            weights = {"model_path": str(directory), "weight_version": str(directory), "flush_cache": True}
            send("POST", "/update_weights_from_disk", weights, "look at the server's log")
            return str(directory)
        hint = (
            "an SGLang server takes adapters with --enable-lora, --max-lora-rank and --lora-target-modules;"
            " 'lora: {publish: merged}' sends it whole weights"
        )
        if any(model["id"] == _SGLANG_ADAPTER for model in served[1:]):
            send("POST", "/unload_lora_adapter", {"lora_name": _SGLANG_ADAPTER}, hint)
        adapter = {"lora_name": _SGLANG_ADAPTER, "lora_path": str(directory)}
        send("POST", "/load_lora_adapter", adapter, hint)  # its cache is kept apart by an id that each loading has
        return f"{served[0]['id']}:{_SGLANG_ADAPTER}"


KINDS: Final[Mapping[KindName, EngineKind]] = MappingProxyType({kind.name: kind for kind in (VllmKind(), SglangKind())})
"""All kinds, by name."""


def find_kind(served: Iterable[JsonObject]) -> EngineKind:
    """Return the kind of an engine with this list of models; vLLM where it names no other."""
    owners = {model.get("owned_by") for model in served}
    return next((kind for kind in KINDS.values() if kind.owner in owners), KINDS["vllm"])


def _first(choices: object) -> JsonObject:
    return next(iter(as_json_objects(choices)), as_json_object(None))


def _list_absent(found: Mapping[str, object]) -> list[str]:
    return [name for name, value in found.items() if not value]
