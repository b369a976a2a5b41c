"""An image is stored once for each trajectory; messages reference it, and reads restore it."""

import base64
import json
import random

import pytest
from hypothesis import given, strategies as st

from agent_layer.gateway.rollouts.media import stored_part
from agent_layer.schema.messages import resolve
from agent_layer.schema.step import Content

PICTURE = base64.b64encode(random.Random(0).randbytes(3000)).decode()
URL = f"data:image/png;base64,{PICTURE}"
texts = st.text(max_size=20) | st.sampled_from([URL, f'"{URL}"', "data:,", f"see {URL}", "\\", URL[:80]])
values = st.recursive(
    texts | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def read(part):
    return resolve({**part.media, part.hash: part.body}, part.hash)


@given(values, st.booleans())
def test_every_json_comes_back(value, is_ascii):
    assert read(stored_part(json.dumps(value, ensure_ascii=is_ascii).encode())) == value


@pytest.mark.parametrize("url", [URL, URL.replace("/", "\\/")])
def test_a_data_url_is_taken_out_however_its_slashes_are_written(url):
    part = stored_part(b'{"role": "user", "content": [{"image_url": {"url": "%b"}}]}' % url.encode())

    assert len(part.body) < 200
    assert list(map(json.loads, part.media.values())) == [URL]


@pytest.mark.parametrize("text", [f"look: {URL}", URL[:80]])
def test_text_that_mentions_one_and_tiny_ones_stay(text):
    assert stored_part(json.dumps({"content": text}).encode()).media == {}


async def test_an_image_is_stored_once_and_the_engine_sees_it(gateway):
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}
    again = {"role": "user", "content": [{"type": "text", "text": "again"}, *shown["content"]]}
    opened = await gateway.open()

    for messages in ([shown], [shown, {"role": "assistant", "content": "hm"}, again]):
        await gateway.post(f"/r/{opened['trajectory_id']}/v1/chat/completions", {"messages": messages})

    assert sum(PICTURE.encode() in content.body for content in gateway.log.of(Content)) == 1
    assert gateway.engine.calls[1].body["messages"][2] == again
    trajectory = gateway.log.trajectory(opened["trajectory_id"])
    assert [resolve(trajectory.contents, one) for one in trajectory.steps[1].state.messages][::2] == [shown, again]
