"""Our own endpoint under test: a gateway and its store in a directory, and how to read what it recorded."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from agent_layer.conformance.adapters import RecordedAnswer, RolloutAdapter, as_record
from agent_layer.conformance.engine import KitEngine
from agent_layer.errors import BadInputError
from agent_layer.infra import temporary_home
from agent_layer.local import run_stack
from agent_layer.schema import JsonObject, Trajectory, as_json_object
from agent_layer.settings import Settings
from agent_layer.store import open_store, show_step


@contextmanager
def run_own_gateway(engine: KitEngine) -> Generator[RolloutAdapter]:
    """Run a gateway in front of the engine, with a store of its own that is removed afterwards."""
    with temporary_home("al-conformance-") as directory:
        settings = Settings(dir=directory, run="conformance")
        with run_stack(settings, engine.engine.url) as stack:
            yield open_own_gateway(stack.settings)


def open_own_gateway(settings: Settings, url: str | None = None, key: str | None = None) -> RolloutAdapter:
    """Return the adapter of a running gateway whose store these settings name.

    Args:
        settings: name Redis and objects of the gateway.
        url: of the gateway; None: as the settings say.
        key: the operator's; None: as the settings say.

    Raises: BadInputError: there is neither address nor key.
    """
    url, key = url or settings.gateway_url, key or settings.api_key
    if not url or not key:
        raise BadInputError(
            "conformance: expected the address and the operator's key of a gateway, found one missing; give URL and"
            " --key, or set AGENT_LAYER_GATEWAY_URL and AGENT_LAYER_API_KEY"
        )
    store = open_store(settings)
    return RolloutAdapter(url.removesuffix("/v1"), key, lambda trajectory_id: _read_steps(store.get(trajectory_id)))


def read_shown_step(shown: JsonObject) -> RecordedAnswer:
    """Return a step, as ``show --format json`` has it, in the form of the kit."""
    state, action = as_json_object(shown.get("state")), as_json_object(shown.get("action"))
    return as_record(
        {
            "messages": state.get("messages"),
            "message": action.get("message"),
            "prompt_token_ids": action.get("prompt_token_ids"),
            "response_token_ids": action.get("response_token_ids"),
            "logprobs": action.get("logprobs"),
            "finish_reason": action.get("finish_reason"),
            "status": str(shown.get("status")),
        }
    )


def _read_steps(trajectory: Trajectory) -> Iterator[RecordedAnswer]:
    return (read_shown_step(show_step(trajectory, step)) for step in trajectory.steps)
