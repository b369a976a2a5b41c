"""A server on Ray lets calls name its adapter, or says which vLLM does not. Driven as ASGI; no vLLM starts."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from trainer_adapter.cluster.weights.adapter import NameAdapter


def serve(**models):
    """The application behind, with vLLM's state."""
    return SimpleNamespace(state=SimpleNamespace(**models))


def models(*names, **others):
    """Vllm's record of the models that it serves."""
    return SimpleNamespace(base_model_paths=[SimpleNamespace(name=name) for name in names], lora_requests={}, **others)


def ask(app, kind="http", make_request=lambda name: f"request of {name}"):
    """Return what the server sends, and whether the application behind saw the request."""
    sent, seen = [], []

    async def behind(scope, *_):
        seen.append(scope)

    async def send(message):
        sent.append(message)

    asyncio.run(NameAdapter(behind, make_request)({"type": kind, "app": app}, None, send))
    return sent, bool(seen)


def test_calls_may_name_the_adapter_of_the_first_model_which_is_made_once():
    served = models("/models/Qwen 3é", "alias")
    app = serve(openai_serving_models=served)

    assert ask(app) == ([], True)
    assert served.lora_requests == {"/models/Qwen 3é-lora": "request of /models/Qwen 3é-lora"}
    served.lora_requests["/models/Qwen 3é-lora"] = "first"
    assert ask(app) == ([], True)
    assert served.lora_requests == {"/models/Qwen 3é-lora": "first"}


def fail(error):
    def make_request(_):
        raise error

    return make_request


@pytest.mark.parametrize(
    ("app", "make_request", "found"),
    [
        (serve(), str, "openai_serving_models"),
        (serve(openai_serving_models=SimpleNamespace()), str, "base_model_paths"),
        (serve(openai_serving_models=models()), str, "IndexError"),
        (serve(openai_serving_models=SimpleNamespace(base_model_paths=[SimpleNamespace(name="m")])), str, "lora_req"),
        (serve(openai_serving_models=models("m")), fail(TypeError("takes 2 arguments")), "takes 2 arguments"),
        (serve(openai_serving_models=models("m")), fail(ImportError("no LoRARequest")), "no LoRARequest"),
    ],
)
def test_a_vllm_that_keeps_its_models_elsewhere_is_named_with_what_to_do(app, make_request, found):
    (start, body), is_seen = ask(app, make_request=make_request)

    message = msgspec.json.decode(body["body"])["error"]["message"]
    assert (start["status"], is_seen) == (500, False)
    assert message.startswith("lora.publish adapter: vllm")
    assert found in message
    assert "set lora.publish to merged" in message
    assert len(body["body"]) < 400, "the trainer's error has so much of it"


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_what_is_no_request_goes_through(kind):
    assert ask(serve(), kind) == ([], True)
