"""Counterparts of the clients under test: a server of two dialects, LangChain's model of the engine."""

import json

import httpx
import pytest
from aiohttp import web
from langchain_openai import ChatOpenAI

from agent_layer.local.scripted.serving import serve_in_thread
from tracer.core.rollout_handle import Rollout

WORDS = ["forty", " two"]
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
        app.add_routes([web.post("/{root:.*}v1/responses", self.respond), web.post("/{root:.*}v1/messages", self.say)])
        return app

    async def respond(self, request):
        body = await self.see(request)
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
        text = '{"count": 42}' if body.get("text") else "".join(WORDS)
        item["content"] = [{"type": "output_text", "text": text, "annotations": []}]
        if body.get("tools") and "function_call_output" not in json.dumps(body["input"]):
            item = {"type": "function_call", "id": "f", "call_id": "c1", "name": "add", "arguments": '{"a": 40}'}
            item["status"] = "completed"
        whole = {**RESPONSE, "status": "completed", "output": [item], "usage": {**USAGE, "total_tokens": 7}}
        whole["usage"] |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        if not body.get("stream"):
            return web.json_response(whole)
        begun = {**RESPONSE, "status": "in_progress", "output": []}
        events = [{"type": "response.created", "response": begun}]
        events += [{"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}}]
        where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        if item["type"] == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            events += [{"type": "response.content_part.added", **where, "part": part}]
            events += [{"type": "response.output_text.delta", **where, "delta": word, "logprobs": []} for word in WORDS]
        events += [{"type": "response.output_item.done", "output_index": 0, "item": item}]
        events += [{"type": "response.completed", "response": whole}]
        return await send(request, [{**event, "sequence_number": number} for number, event in enumerate(events)])

    async def say(self, request):
        body = await self.see(request)
        block, reason = {"type": "text", "text": "".join(WORDS)}, "end_turn"
        pieces = [{"type": "text_delta", "text": word} for word in WORDS]
        if body.get("tools") and "tool_result" not in json.dumps(body["messages"]):
            block, reason = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 40}}, "tool_use"
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"a"', ": 40}")]
        if not body.get("stream"):
            return web.json_response({**MESSAGE, "content": [block], "stop_reason": reason, "usage": USAGE})
        begun = {**MESSAGE, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 0}}
        empty = {**block, "text": ""} if reason == "end_turn" else {**block, "input": {}}
        events = [{"type": "message_start", "message": begun}]
        events += [{"type": "content_block_start", "index": 0, "content_block": empty}, {"type": "ping"}]
        events += [{"type": "content_block_delta", "index": 0, "delta": piece} for piece in pieces]
        events += [{"type": "content_block_stop", "index": 0}]
        events += [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": USAGE}]
        return await send(request, [*events, {"type": "message_stop"}])

    async def see(self, request):
        body = await request.json()
        self.seen.append((request.path, dict(request.headers), body))
        return body


async def send(request, events):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
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
