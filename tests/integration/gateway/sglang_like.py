"""A scripted engine that answers as SGLang does, by the source of its version 0.5.23 (``python/sglang/srt``).

Bodies follow ``entrypoints/openai/protocol.py`` and ``serving_chat.py``, refusals ``managers/tokenizer_manager.py``,
control endpoints ``entrypoints/http_server.py``, metrics ``observability/metrics_collector.py``.
"""

import asyncio
from dataclasses import dataclass

from aiohttp import web

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.script import token_logprob

STREAM_REFUSAL = (
    "return_token_ids is not supported with streaming on /v1/chat/completions. Please set stream=false when using"
    " return_token_ids=true."
)
READS = frozenset(
    """
    messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
    presence_penalty response_format seed stop stream stream_options temperature top_p user tools tool_choice
    parallel_tool_calls return_token_ids reasoning_effort top_k min_p min_tokens regex ebnf repetition_penalty
    stop_token_ids no_stop_trim ignore_eos continue_final_message skip_special_tokens separate_reasoning
    stream_reasoning chat_template_kwargs
    """.split()  # noqa: SIM905  # a list of strings would take forty lines
)
"""Members that it reads and the gateway may send (``ChatCompletionRequest``); it ignores others."""


def refuse(status, message):
    body = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": status}
    return web.json_response(body, status=status)


@dataclass(kw_only=True)
class SglangLike(ScriptedEngine):
    """Its address, script and book of calls are those of any scripted engine."""

    owner: str = "sglang"
    path: str = "/models/first"
    """Where its weights come from."""

    def app(self):
        app = web.Application(client_max_size=1 << 28, middlewares=[self._check_key])
        app.add_routes(
            [
                web.get("/health", self._sample_health),
                web.get("/ping", self._ping),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._list_models),
                web.get("/model_info", self._model_info),
                web.post("/v1/chat/completions", self._chat),
                web.post("/tokenize", self._tokenize),
                web.post("/update_weights_from_disk", self._update_weights),
                web.post("/load_lora_adapter", self._load_lora),
                web.post("/unload_lora_adapter", self._unload_lora),
            ]
        )
        return app

    async def _sample_health(self, _):
        self.controls["health"] += 1
        await asyncio.sleep(1.0)  # as SGLang does
        return web.Response()

    async def _ping(self, _):
        return web.Response()

    async def _metrics(self, _):
        labels = f'{{engine_type="unified",model_name="{self.model}",pp_rank="0",tp_rank="0"}}'
        gauges = {"num_running_reqs": self.num_running, "num_queue_reqs": self.num_waiting}
        gauges |= {"token_usage": self.cache_usage, "full_token_usage": 0.0, "cache_hit_rate": 0.5}
        return web.Response(text="".join(f"sglang:{name}{labels} {float(one)}\n" for name, one in gauges.items()))

    async def _list_models(self, _):
        card = {"object": "model", "created": 1, "owned_by": self.owner}
        served = [{"id": self.model, "root": self.model, "parent": None, "max_model_len": self.context_tokens}]
        if self.adapter:
            name = self.adapter.rpartition(":")[2]
            served.append({"id": name, "root": self.weights, "parent": self.model, "max_model_len": None})
        return web.json_response({"object": "list", "data": [one | card for one in served]})

    async def _model_info(self, _):
        return web.json_response({"model_path": self.path, "served_model_name": self.model, "weight_version": "x"})

    async def _chat(self, request):
        body = await request.json()
        if body.get("stream") and body.get("return_token_ids"):
            return refuse(400, STREAM_REFUSAL)
        return await super()._chat(request)

    def _refuse_long(self, num_prompt, num_wanted):
        most = self.context_tokens
        if most is None:
            return None
        if num_wanted > most:
            return refuse(
                400,
                f"max_completion_tokens is too large: {num_wanted}.This model supports at most {most} completion"
                " tokens.",
            )
        if num_prompt >= most:
            return refuse(
                400, f"The input ({num_prompt} tokens) is longer than the model's context length ({most} tokens)."
            )
        if num_prompt + num_wanted > most:
            return refuse(
                400,
                f"Requested token count exceeds the model's maximum context length of {most} tokens. You requested a"
                f" total of {num_prompt + num_wanted} tokens: {num_prompt} tokens from the input messages and"
                f" {num_wanted} tokens for the completion. Please reduce the number of tokens in the input messages or"
                " the completion to fit within the limit.",
            )
        return None

    async def _answer(self, call):
        choices = [await self._sample(call, place, one) for place, one in enumerate(self._make_choices(call))]
        num_prompt, num_sampled = len(call.prompt_token_ids), sum(map(len, call.token_ids))
        usage = {"prompt_tokens": num_prompt, "total_tokens": num_prompt + num_sampled}
        usage |= {"completion_tokens": num_sampled, "prompt_tokens_details": None, "reasoning_tokens": 0}
        answer = {"id": "0f3a", "object": "chat.completion", "created": 1, "model": call.body["model"]}
        answer |= {"choices": choices, "usage": usage, "metadata": {"weight_version": self.weights}}
        return web.json_response(self.rewrite(call, answer))

    async def _sample(self, call, choice, scripted_choice):
        sampled = await super()._sample(call, choice, scripted_choice)
        message, ids = sampled["message"], call.token_ids[choice]
        shown = {"role": "assistant", "content": message["content"] or ""}
        shown["reasoning_content"] = message.get("reasoning")
        if message.get("tool_calls"):
            shown["tool_calls"] = message["tool_calls"]
        whole = {"index": choice, "message": shown, "logprobs": sampled["logprobs"]}
        whole |= {"finish_reason": sampled["finish_reason"], "matched_stop": sampled["stop_reason"]}
        if self.token_ids and call.body.get("return_token_ids"):
            whole |= {"prompt_token_ids": call.prompt_token_ids, "response_token_ids": ids}
        return whole

    def _logprobs(self, body, ids):
        if not body.get("logprobs"):
            return None
        known = [(str(one), token_logprob(one)) for one in ids]
        return {
            "content": [{"token": one, "bytes": [97], "logprob": value, "top_logprobs": []} for one, value in known]
        }

    async def _update_weights(self, request):
        """Wait for running requests, hold new ones."""
        body = await request.json()
        if self.refuses_weights:
            return web.json_response({"success": False, "message": "Failed to update weights"}, status=400)
        self._open.clear()
        await self._idle.wait()
        self.weights = self.path = self.model = body["model_path"]
        self.num_loads += 1
        self.controls["flush_cache"] += body["flush_cache"]
        self._open.set()
        return web.json_response({"success": True, "message": "Succeeded", "num_paused_requests": 0})

    async def _load_lora(self, request):
        body = await request.json()
        if self.adapter:
            return web.json_response({"success": False, "error_message": "already loaded"}, status=400)
        self.adapter, self.weights = f"{self.model}:{body['lora_name']}", body["lora_path"]
        self.num_loads += 1
        return web.json_response({"success": True})

    async def _unload_lora(self, request):
        name = (await request.json())["lora_name"]
        if not (self.adapter or "").endswith(f":{name}"):
            return web.json_response({"success": False, "error_message": "not loaded"}, status=400)
        self.adapter = None
        return web.json_response({"success": True})
