"""Streams of LangChain's models that are read no further: the client below knows what had come by then."""

import pytest

import tracer
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread


@pytest.fixture(scope="module")
def engine():
    with serve_in_thread(ScriptedEngine(script=lambda _: "word " * 100)) as engine:
        yield engine


async def read_some(model, *, is_async):
    if is_async:
        items = model.astream("go on")
        return [await anext(items) for _ in range(3)], items
    items = model.stream("go on")
    return [next(items) for _ in range(3)], items


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_stream_that_is_left_is_an_aborted_step_with_what_had_come(model, is_async, is_closed):
    with tracer.testing.capture() as captured:
        with tracer.rollout(task="t"):
            _, items = await read_some(model, is_async=is_async)
            if is_closed:
                await items.aclose() if is_async else items.close()
        if not is_closed:
            await items.aclose() if is_async else items.close()

    (step,) = captured.steps
    assert step.status == "aborted"
    assert step.action.message["content"].startswith("word")
    assert captured.trajectory.outcome.status == "completed"
