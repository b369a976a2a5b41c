import json

import pytest

import tracer

from .conftest import THOUGHT

ADD = {"name": "add", "description": "adds", "parameters_json_schema": {"type": "object", "properties": {}}}
CONFIG = {"system_instruction": "be brief", "temperature": 0.5}
MANNERS = [(is_async, is_streamed) for is_async in (False, True) for is_streamed in (False, True)]


@pytest.fixture(scope="module", autouse=True)
def _instrumented():
    tracer.instrument("google")


@pytest.fixture
async def connect():
    """``connect(address, **options)``: a client of Google's."""
    from google import genai  # noqa: PLC0415  # it takes seconds, which collecting must not

    made = []

    def open_client(address, **options):
        made.append(genai.Client(api_key="own", http_options={"base_url": address}, **options))
        return made[-1]

    yield open_client
    for client in made:
        client.close()
        await client.aio.aclose()


async def ask(client, *, is_async, is_streamed, model="g", contents="how many", config=None):
    """Ask in one of the four manners, and return the pieces of the answer."""
    models = (client.aio if is_async else client).models
    fields = {"model": model, "contents": contents, "config": config}
    match is_async, is_streamed:
        case False, False:
            return [models.generate_content(**fields)]
        case False, True:
            return list(models.generate_content_stream(**fields))
        case True, False:
            return [await models.generate_content(**fields)]
        case _:
            return [piece async for piece in await models.generate_content_stream(**fields)]


def read_contents(trajectory, step):
    return [json.loads(trajectory.contents[key]) for key in step.state.messages]


@pytest.mark.parametrize(("is_async", "is_streamed"), MANNERS)
async def test_calls_are_recorded_in_the_words_of_chat(dialects, connect, is_async, is_streamed):
    client, manner = connect(dialects.url), {"is_async": is_async, "is_streamed": is_streamed}
    config = CONFIG | {"thinking_config": {"include_thoughts": True}}
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        await ask(client, config=config, **manner)
        tools = {"tools": [{"function_declarations": [ADD]}]}
        called = await ask(client, config=tools, **manner)
        result = {"function_response": {"id": "c1", "name": "add", "response": {"output": "42"}}}
        spoken = [{"role": "user", "parts": [{"text": "add"}]}, called[0].candidates[0].content, {"parts": [result]}]
        await ask(client, contents=spoken, config=tools, **manner)

    first, calling, last = captured.trajectory.steps
    user = {"role": "user", "content": "how many"}
    assert read_contents(captured.trajectory, first) == [{"role": "system", "content": "be brief"}, user]
    assert first.action.message == {"role": "assistant", "content": "forty two", "reasoning": THOUGHT}
    assert (first.model, first.status, first.findings) == ("scripted", "ok", [])
    assert first.sampling_asked["generationConfig"]["temperature"] == 0.5
    assert (first.usage.prompt_tokens, first.usage.response_tokens, first.action.finish_reason) == (5, 2, "stop")
    assert calling.action.finish_reason == "tool_calls"
    assert read_contents(captured.trajectory, last)[1:] == [
        calling.action.message,
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    assert last.parent_call == calling.call_id


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_stream_that_its_reader_leaves_is_aborted(dialects, connect, is_async):
    client = connect(dialects.url)
    with tracer.testing.capture() as captured, tracer.rollout(task="t"):
        if is_async:
            async for _ in await client.aio.models.generate_content_stream(model="g", contents="hi"):
                break
        else:
            for _ in client.models.generate_content_stream(model="g", contents="hi"):
                break

    (step,) = captured.trajectory.steps
    assert (step.status, step.action.message["content"]) == ("aborted", "forty")


@pytest.mark.parametrize(("is_async", "is_streamed"), MANNERS)
async def test_a_failed_call_is_an_error_and_the_error_goes_on(dialects, connect, is_async, is_streamed):
    from google.genai import errors  # noqa: PLC0415  # it takes seconds, which collecting must not

    client = connect(dialects.url)
    with tracer.testing.capture() as captured, tracer.rollout(task="t"), pytest.raises(errors.ClientError):
        await ask(client, is_async=is_async, is_streamed=is_streamed, model="none")

    (step,) = captured.trajectory.steps
    assert step.status == "error"
    assert "ClientError" in step.error


@pytest.mark.parametrize("options", [{}, {"vertexai": True}], ids=["gemini", "vertex"])
@pytest.mark.parametrize(("is_async", "is_streamed"), MANNERS)
async def test_with_a_gateway_the_call_goes_to_the_rollouts_address_with_its_key(
    dialects, connect, rollout_at, is_async, is_streamed, options
):
    client = connect("http://127.0.0.1:9", **options)
    with tracer.testing.capture() as captured, tracer.enter_rollout(rollout_at(f"{dialects.url}/r/r-0", captured)):
        await ask(client, is_async=is_async, is_streamed=is_streamed)

    ((path, headers, _),) = dialects.seen
    (part,) = captured.records
    assert path == f"/r/r-0/v1beta/models/g:{'streamG' if is_streamed else 'g'}enerateContent"
    assert (headers["x-goog-api-key"], headers["x-agent-layer-rollout"]) == ("key-of-r", "r-0")
    assert "Authorization" not in headers
    assert (part.call_id, part.phase, part.state.messages) == (headers["x-agent-layer-call"], "start", None)
