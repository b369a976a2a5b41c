"""A real vLLM takes a LoRA adapter at run time, and samples what base and adapter compute.

torch and veRL take ten seconds to import, so they are imported inside tests: collection stays fast.
"""
# ruff: noqa: PLC0415  # so the imports stand where they are needed

import pytest
import requests

from agent_layer.engines import EngineRegistry, register_engine
from agent_layer.errors import EngineError
from agent_layer.local.vllm import VllmServer
from agent_layer.recorder import open_recorder
from trainer_adapter.config import LoraConfig, TrainConfig

from ..waiting import scaled

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch, ray and veRL warn of each other
    pytest.mark.timeout(1800),
    pytest.mark.long,
]


def move_adapter(trainer, seed):
    """Change the adapter without an update."""
    import torch

    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in trainer._worker.engine.module.named_parameters():
            if ".lora_" in name:
                parameter.to_local().normal_(std=0.1)


def sample(engine):
    body = {"model": engine.model, "messages": [{"role": "user", "content": "add"}], "max_tokens": 12, "seed": 1}
    request = body | {"temperature": 1.0, "return_token_ids": True, "logprobs": True, "ignore_eos": True}
    answer = requests.post(f"{engine.url}/v1/chat/completions", json=request, timeout=scaled(120))
    answer.raise_for_status()
    choice = answer.json()["choices"][0]
    logprobs = [one["logprob"] for one in choice["logprobs"]["content"]]
    return answer.json()["prompt_token_ids"], choice["token_ids"], logprobs


def compute_logprobs(weights, model, prompt, answer):
    import torch
    from transformers import AutoModelForCausalLM

    reader = AutoModelForCausalLM.from_pretrained(model).eval()
    reader.load_state_dict(dict(weights))
    with torch.no_grad():
        logits = reader(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()


def test_vllm_samples_under_each_published_adapter(settings, redis, keys, chat_model, tmp_path):
    from trainer_adapter.verl import EmbeddedTrainer, WeightPublisher

    lora = LoraConfig(rank=4, alpha=8, publish="adapter")
    trainer = EmbeddedTrainer(TrainConfig(model=chat_model, tasks=[], steps=1, lora=lora))
    publisher = WeightPublisher(settings, settings.run, redis, open_recorder(settings))
    publisher.register_base(chat_model)
    with VllmServer(
        model=chat_model, log=tmp_path / "vllm.log", max_model_len=256, lora_rank=4, start_seconds=scaled(300)
    ) as server:
        register_engine(settings, redis, server.url, location=str(chat_model), logprobs_mode="processed")
        for version in (1, 2):
            move_adapter(trainer, version)
            assert publisher.publish(trainer.published_weights(), chat_model, version) == version
            publisher.serve(version, is_required=True)

            engine = EngineRegistry(redis, keys).read(server.url)
            prompt, answer, logprobs = sample(engine)

            assert (engine.version, engine.state, engine.model) == (version, "serving", "policy-lora")
            assert logprobs == pytest.approx(compute_logprobs(trainer.weights(), chat_model, prompt, answer), abs=1e-4)
        files = {one.name for one in (publisher.directory / "000002").iterdir()}
        assert "adapter_model.safetensors" in files
        assert "model.safetensors" not in files


def test_vllm_without_adapters_is_told_how_to_take_them(settings, redis, chat_model, tmp_path):
    from trainer_adapter.verl import EmbeddedTrainer, WeightPublisher

    lora = LoraConfig(rank=4, publish="adapter")
    trainer = EmbeddedTrainer(TrainConfig(model=chat_model, tasks=[], steps=1, lora=lora))
    publisher = WeightPublisher(settings, settings.run, redis, open_recorder(settings))
    publisher.register_base(chat_model)
    publisher.publish(trainer.published_weights(), chat_model, 1)
    with VllmServer(
        model=chat_model, log=tmp_path / "vllm.log", max_model_len=256, start_seconds=scaled(300)
    ) as server:
        register_engine(settings, redis, server.url, location=str(chat_model), logprobs_mode="processed")

        with pytest.raises(EngineError, match=r"--enable-lora.*publish: merged"):
            publisher.serve(1, is_required=True)
