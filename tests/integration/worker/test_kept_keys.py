"""No key of an operator or a rollout is ever stored, wherever agents, clients, errors and addresses put it."""

import sys

import openai

from agent_layer.recorder import scrubbing
from agent_layer.recorder.scrubbing import KeyScrubber
from agent_layer.schema.codec import encode
from agent_layer.schema.wire.gateway_api import KEY_PREFIX
from agent_layer.store.maintenance.rebuild import read_segment
from agent_layer.store.segments.format import list_segments


def test_a_blot_is_as_long_as_the_key_that_it_covers():
    scrubber = KeyScrubber(["operator-key", "short"])
    content = f'"Bearer operator-key" short {KEY_PREFIX}aA0_-\\n {KEY_PREFIX}x'.encode()

    assert scrubber.scrub(content) == b'"Bearer ************" short **********\\n ******'
    assert scrubber.scrub(b"nothing to hide") == b"nothing to hide"


def test_a_key_is_covered_wherever_a_piece_of_a_long_content_would_end(monkeypatch):
    content = b" ".join([KEY_PREFIX.encode() + b"a" * number for number in range(30)] + [b"b" * 30])
    whole = KeyScrubber([]).scrub(content)

    for size in range(1, 40):
        monkeypatch.setattr(scrubbing, "_PIECE_BYTES", size)
        assert KeyScrubber([]).scrub(content) == whole
    assert set(whole) == set(KEY_PREFIX.encode() + b"* b")
    assert whole.count(KEY_PREFIX.encode()) == 1  # what is no key, because nothing follows


LEAK = """
import json, os, sys, urllib.request
key, base = os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]
body = {"model": key, "messages": [{"role": "user", "content": "my key is " + key}], "user": key, "api_key": key}
headers = {"x-api-key": key, "x-note": key, "traceparent": key}
asked = urllib.request.Request(base + "/chat/completions?key=" + key, json.dumps(body).encode(), headers)
urllib.request.urlopen(asked).read()
reward = json.dumps({"score": 1.0, "name": "n" + key}).encode()
urllib.request.urlopen(urllib.request.Request(base + "/../reward", reward, headers)).read()
print(json.dumps(dict(os.environ)))
sys.exit("I fail, and tell " + key if "failing" in os.environ["AGENT_LAYER_TASK"] else None)
"""


async def test_no_key_is_in_any_log_or_object(harness, task, until):
    keys = [harness.settings.api_key]

    async def leak_in_process(_view, rollout):
        keys.append(rollout.api_key)
        async with openai.AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.api_key) as client:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": rollout.api_key}])
        raise ValueError(f"{rollout.api_key} and {harness.settings.api_key}")

    message = await harness.run([sys.executable, "-c", LEAK], task("saying"), task("failing"))
    await harness.run(leak_in_process, task("raising"))

    assert [reward.score for one in message if one.accepted for reward in one.rewards] == [1.0]
    await until(lambda: not list(harness.settings.log_dir.glob("*-*")))  # else logs go while they are read
    stored = b"".join(read_all(harness))
    assert b"my key is ****" in stored
    assert KEY_PREFIX.encode() not in stored
    assert len(keys) > 1
    assert not [key for key in keys if key.encode() in stored]


def test_a_key_that_was_cut_off_with_its_text_is_covered():
    scrubber = KeyScrubber(["operator-key"])

    assert scrubber.scrub_text("it is operator-key, or operator-k") == "it is ************, or **********"
    assert scrubber.scrub_text("to operate") == "to operate"


async def test_no_key_is_in_the_queue_the_dead_list_or_the_log_of_the_worker(harness, redis, task, caplog):
    secret = harness.settings.api_key

    async def leak(_view, rollout):
        raise ValueError(f"{rollout.api_key} and {secret}")

    await harness.run(leak, task("raising"))

    errors = [error for state in harness.dispatcher.dead() for error in state.errors]
    assert errors
    assert all("ValueError: ****" in error for error in errors)
    assert "ValueError: ****" in caplog.text
    assert secret not in caplog.text
    kept = [redis.dump(key) for key in redis.scan_iter(match=f"al:{{{harness.settings.namespace}}}:*")]
    hashes = [
        redis.hgetall(key) for key in redis.scan_iter(match=f"al:{{{harness.settings.namespace}}}:q*", _type="hash")
    ]
    assert hashes
    assert secret.encode() not in b"".join(kept) + repr(hashes).encode()


def read_all(harness):
    """Yield every record of the segments, and every file outside Redis."""
    store = harness.store
    for key in list_segments(store.keys, store.objects):
        for records in read_segment(store.objects, key).records.values():
            yield from (encode(record) for record in records)
    for path in harness.settings.dir.rglob("*"):
        if path.is_file() and "redis" not in path.parts:
            yield path.read_bytes()
