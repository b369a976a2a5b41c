"""A client that disconnects ends its call, also at the engine, even before the engine's first word."""

import asyncio
from types import SimpleNamespace

import pytest

from agent_layer.gateway.calls.disconnects import DisconnectWatcher
from agent_layer.gateway.rollouts.retries import Call
from agent_layer.schema.wire.gateway_api import CALL_HEADER

PATHS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
    "/v1beta/models/m:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
}


def asking(gateway, opened, path, **more):
    url = f"{gateway.url}/r/{opened['trajectory_id']}{path}"
    headers = {"authorization": f"Bearer {opened['api_key']}", CALL_HEADER: "the-call"}

    async def ask():
        async with gateway.session.post(url, json=PATHS.get(path, {}) | more, headers=headers) as reply:
            return await reply.read()

    return asyncio.create_task(ask())


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_a_silent_engine_is_told(gateway, until, path, is_streamed):
    gateway.engine.token_seconds = 60
    opened = await gateway.open()

    form = path.replace(":generate", ":streamGenerate") if is_streamed else path
    call = asking(gateway, opened, form, **{**PATHS[path], "stream": is_streamed})
    await until(lambda: gateway.engine.num_running)
    call.cancel()
    await until(lambda: not gateway.engine.num_running)

    await until(lambda: gateway.log.parts("end"))
    assert (gateway.step(opened).status, gateway.engine.calls[0].finished) == ("aborted", False)


async def test_a_client_that_leaves_the_queue_never_reaches_the_engine(gateway, until):
    gateway.engine._open.clear()
    opened = await gateway.open()

    call = asking(gateway, opened, "/v1/chat/completions")
    await until(lambda: gateway.log.parts("start"))
    call.cancel()
    await until(lambda: gateway.log.parts("end"))
    gateway.engine._open.set()

    assert gateway.step(opened).status == "aborted"
    assert gateway.engine.calls == []


async def test_a_call_that_another_client_joined_goes_on(until):
    async def wait_with(call):
        with disconnects.watch(left) as client:
            client.call = call
            await asyncio.Event().wait()

    disconnects, left = DisconnectWatcher(seconds=0.001), SimpleNamespace(is_gone=True)
    calls = [Call("joined", num_joined=1), Call("alone")]
    joined, alone = [asyncio.create_task(wait_with(call)) for call in calls]
    watching = asyncio.create_task(disconnects.run())
    await until(alone.cancelled)
    assert not joined.done()

    calls[0].num_joined = 0
    await until(joined.cancelled)
    watching.cancel()
