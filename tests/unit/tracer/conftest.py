"""Counterparts of the clients under test: a server of all dialects, LangChain's model of the engine."""

import base64
import json
import struct
import zlib

import httpx
import pytest
from aiohttp import web
from langchain_openai import ChatOpenAI

from agent_layer.local.scripted.serving import serve_in_thread
from tracer.core.rollout_handle import Rollout

WORDS = ["forty", " two"]
THOUGHT = "six times seven"
USAGE = {"input_tokens": 5, "output_tokens": 2}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "scripted",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None}


class DialectServer:
    """Answers 'forty two', as JSON on request; first calls the tool 'add' if the request has tools."""

    def __init__(self):
        self.seen = []
        self.url = ""

    def app(self):
        app = web.Application()
        app.add_routes(
            [
                web.post("/{root:.*}v1/responses", self.respond),
                web.post("/{root:.*}v1/messages", self.say),
                web.post("/{root:.*}/invoke", self.say),  # Bedrock
                web.post("/{root:.*}/invoke-with-response-stream", self.say),
                web.post("/{root:.*}Predict", self.say),  # Vertex
                web.post("/{root:.*}/chat/completions", self.chat),
                web.post("/{root:.*}models/{model}:generateContent", self.generate),
                web.post("/{root:.*}models/{model}:streamGenerateContent", self.generate),
            ]
        )
        return app

    async def chat(self, request):
        body = await self.see(request)
        whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "scripted"}
        message = {"role": "assistant", "content": "".join(WORDS)}
        if not body.get("stream"):
            return web.json_response(whole | {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
        deltas = [{"role": "assistant"}, *({"content": word} for word in WORDS)]
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        choices += [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        chunks = [{**whole, "object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
        return await send(request, chunks, last="data: [DONE]\n\n")

    async def respond(self, request):
        body = await self.see(request)
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
        text = '{"count": 42}' if body.get("text") else "".join(WORDS)
        item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
        if body.get("tools") and "function_call_output" not in json.dumps(body["input"]):
            item = {"type": "function_call", "id": "f", "call_id": "c1", "name": "add", "arguments": '{"a": 40}'}
            item["status"] = "completed"
        thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": THOUGHT}]}
        items = [thought, item] if body.get("reasoning") else [item]
        whole = {**RESPONSE, "status": "completed", "output": items, "usage": {**USAGE, "total_tokens": 7}}
        whole["usage"] |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        if not body.get("stream"):
            return web.json_response(whole)
        begun = {**RESPONSE, "status": "in_progress", "output": []}
        events = [{"type": "response.created", "response": begun}]
        if body.get("reasoning"):
            place = {"item_id": "rs", "output_index": 0}
            events += [{"type": "response.output_item.added", "output_index": 0, "item": {**thought, "summary": []}}]
            part = {"type": "summary_text", "text": ""}
            events += [{"type": "response.reasoning_summary_part.added", **place, "summary_index": 0, "part": part}]
            delta = {"type": "response.reasoning_summary_text.delta", **place, "summary_index": 0, "delta": THOUGHT}
            events += [delta, {"type": "response.output_item.done", "output_index": 0, "item": thought}]
        events += [
            {"type": "response.output_item.added", "output_index": len(items) - 1, "item": {**item, "content": []}}
        ]
        where = {"item_id": item["id"], "output_index": len(items) - 1, "content_index": 0}
        if item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            events += [{"type": "response.content_part.added", **where, "part": part}]
            events += [{"type": "response.output_text.delta", **where, "delta": word, "logprobs": []} for word in WORDS]
        events += [{"type": "response.output_item.done", "output_index": len(items) - 1, "item": item}]
        events += [{"type": "response.completed", "response": whole}]
        return await send(request, [{**event, "sequence_number": number} for number, event in enumerate(events)])

    async def say(self, request):
        body = await self.see(request)
        block, reason = {"type": "text", "text": "".join(WORDS)}, "end_turn"
        pieces = [{"type": "text_delta", "text": word} for word in WORDS]
        if body.get("tools") and "tool_result" not in json.dumps(body["messages"]):
            block, reason = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 40}}, "tool_use"
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"a"', ": 40}")]
        thought = {"type": "thinking", "thinking": THOUGHT, "signature": "s"}
        blocks = [thought, block] if body.get("thinking") else [block]
        if not body.get("stream") and "stream" not in request.path:
            return web.json_response({**MESSAGE, "content": blocks, "stop_reason": reason, "usage": USAGE})
        begun = {**MESSAGE, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 0}}
        empty = {**block, "text": ""} if reason == "end_turn" else {**block, "input": {}}
        events = [{"type": "message_start", "message": begun}]
        if body.get("thinking"):
            began = {"type": "content_block_start", "index": 0, "content_block": thought | {"thinking": ""}}
            delta = {"type": "thinking_delta", "thinking": THOUGHT}
            events += [began, {"type": "content_block_delta", "index": 0, "delta": delta}]
            events += [{"type": "content_block_stop", "index": 0}]
        last = len(blocks) - 1
        events += [{"type": "content_block_start", "index": last, "content_block": empty}, {"type": "ping"}]
        events += [{"type": "content_block_delta", "index": last, "delta": piece} for piece in pieces]
        events += [{"type": "content_block_stop", "index": last}]
        events += [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": USAGE}]
        events += [{"type": "message_stop"}]
        return await (send_frames if "invoke" in request.path else send)(request, events)

    async def generate(self, request):
        body = await self.see(request)
        if request.match_info["model"] == "none":
            return web.json_response({"error": {"code": 404, "message": "no model", "status": "NOT_FOUND"}}, status=404)
        parts = [{"text": word} for word in WORDS]
        if body.get("tools") and "functionResponse" not in json.dumps(body["contents"]):
            parts = [{"functionCall": {"id": "c1", "name": "add", "args": {"a": 40}}}]
        if body.get("generationConfig", {}).get("thinkingConfig"):
            parts = [{"text": THOUGHT, "thought": True}, *parts]
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
        pieces = [[part] for part in parts] if "stream" in request.path else [parts]
        answers = [
            {"candidates": [{"content": {"role": "model", "parts": piece}}], "modelVersion": "scripted"}
            for piece in pieces
        ]
        answers[-1]["candidates"][0]["finishReason"] = "STOP"
        answers[-1]["usageMetadata"] = usage
        return await send(request, answers) if "stream" in request.path else web.json_response(answers[0])

    async def see(self, request):
        body = await request.json()
        self.seen.append((request.path, dict(request.headers), body))
        return body


async def send(request, events, last=""):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        await response.write(f"{name}data: {json.dumps(event)}\n\n".encode())
    await response.write(last.encode())
    return response


async def send_frames(request, events):
    """Send the events as Bedrock does, in AWS's binary frames."""
    response = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream"})
    await response.prepare(request)
    names = {":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )
    for event in events:
        payload = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode()}).encode()
        frame = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
        frame += struct.pack(">I", zlib.crc32(frame)) + headers + payload
        await response.write(frame + struct.pack(">I", zlib.crc32(frame)))
    return response


@pytest.fixture
def dialects():
    with serve_in_thread(DialectServer()) as server:
        yield server


@pytest.fixture
def rollout_at():
    """``rollout_at(address, sink, name="r")``: a rollout whose model is at this address."""

    def at(address, sink, name="r"):
        return Rollout(
            trajectory_id=f"{name}-0",
            rollout_id=name,
            attempt=0,
            run="r",
            sink=sink,
            base_url=f"{address}/v1",
            api_key=f"key-of-{name}",
        )

    return at


@pytest.fixture
async def model(engine):
    """LangChain's model in front of the engine of the file that asks."""
    async with httpx.AsyncClient() as async_client:
        with httpx.Client() as client:
            yield ChatOpenAI(
                model="scripted",
                base_url=f"{engine.url}/v1",
                api_key="own",
                http_client=client,
                http_async_client=async_client,
            )
