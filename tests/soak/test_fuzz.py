"""Mutated requests, spans, segments, logs and task files: no crash, no status 500, and no record that was never sent.

Each target runs for ``FUZZ_SECONDS`` (20; ten minutes before a release). A failure names ``FUZZ_SEED``, its round and
what was sent; ``FUZZ_ROUND`` begins there. Requests of one rollout follow each other: begin at its first one.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

import aiohttp
import msgspec
import pytest
import zstandard
from aiohttp import web

from agent_layer.dispatcher.tasks import parse_tasks
from agent_layer.errors import BadInputError, CorruptRecordError
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.recorder.frames import frame, read_frames
from agent_layer.schema.codec import decode, encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.step import StepPart
from agent_layer.store.segments.format import StoredRecord, build_segment, read_chunk, read_footer, salvage_segment

from ..builders import attempt_with_everything
from ..integration.gateway.conftest import MemoryLog, open_gateway
from ..integration.ingest.conftest import serve_receiver
from ..waiting import within
from .fuzz.corpus import DIALECTS, TASKS, TRACES, as_protobuf
from .fuzz.mutations import mutate_bytes, mutate_json

SECONDS, SEED = float(os.environ.get("FUZZ_SECONDS", "20")), os.environ.get("FUZZ_SEED", "0")
FIRST = int(os.environ.get("FUZZ_ROUND", "0"))
LEAST_PER_SECOND = 1
"""Rounds; fewer mean that the target is stuck."""
PER_ROLLOUT = 40
NAME = new_id(lambda: 1_795_000_000_000_000_000)

pytestmark = pytest.mark.timeout(SECONDS + 600)


def rounds() -> Iterator[tuple[int, Random]]:
    """Yield numbers, each with its own randomness, until the time is over."""
    until, number = time.monotonic() + SECONDS, FIRST
    while time.monotonic() < until:  # wait: how long it goes on
        yield number, Random(f"{SEED}/{number}")
        number += 1


@contextmanager
def naming(number: int, sent: bytes):
    try:
        yield
    except BaseException as error:
        error.add_note(f"FUZZ_SEED={SEED}, round {number}, sent {sent!r:.4000}")
        raise


class StrictEngine(ScriptedEngine):
    """Refuses what it does not understand with 400, as vLLM does, instead of failing at it."""

    def app(self) -> web.Application:
        app = super().app()
        app.middlewares.append(_refuse_nonsense)
        return app


@web.middleware
async def _refuse_nonsense(request, handler):
    try:
        body = await request.json() if request.can_read_body else {}
        range(1, 9).index(body.get("n") or 1)  # more choices would fill the memory
        return await handler(request)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, UnicodeError) as error:
        refused = {
            "error": {"message": repr(error)[:200].encode("ascii", "replace").decode(), "type": "BadRequestError"}
        }
        return web.json_response(refused, status=400)


@pytest.mark.parametrize("path", DIALECTS)
async def test_requests_of_each_dialect(path, settings, redis, register_engine):
    settings = settings.model_copy(update={"api_key": "operator-key", "max_body_values": 20_000})
    engine, log = StrictEngine(), MemoryLog()
    async with open_gateway(settings, redis, register_engine, engine, log) as gateway:
        opened, answer = None, []
        for number, chance in rounds():
            if opened is None or number % PER_ROLLOUT == 0:
                check_records(log, engine, answer)
                opened, answer = await gateway.open(calls_optional=True), []
                log.records.clear()
                engine.calls.clear()
            body = mutate_json(chance.choice(DIALECTS[path]), chance)
            with naming(number, body):
                answer.append(await send(gateway, opened, path, body))
        check_records(log, engine, answer)
    assert number - FIRST > LEAST_PER_SECOND * SECONDS


async def send(gateway, opened, path, body) -> int:
    """Send a body; return the status, after it was checked that the answer has the form of its dialect."""
    headers = {"Authorization": f"Bearer {opened['api_key']}", "Content-Type": "application/json"}
    async with (
        within(30, "an answer"),
        gateway.session.post(f"{opened['base_url']}/{path}", data=body, headers=headers) as reply,
    ):
        content_read = await reply.read()
    assert reply.status < 500, content_read
    if reply.content_type == "text/event-stream":
        events = [
            line[6:]
            for line in content_read.decode().splitlines()
            if line.startswith("data: ") and "[DONE]" not in line
        ]
        assert [json.loads(event) for event in events]
        return reply.status
    answer = json.loads(content_read)
    if reply.status >= 400:
        assert isinstance(answer["error"]["message"], str)
        assert "Traceback" not in answer["error"]["message"]
    return reply.status


def check_records(log, engine, statuses) -> None:
    """Each call that the engine finished is stored with its own tokens, and each record can be read again."""
    ends = [part for part in log.of(StepPart) if part.phase == "end"]
    assert len(ends) == len([part for part in log.of(StepPart) if part.phase == "start"])
    good = [part for part in ends if part.status == "ok"]
    finished = [call for call in engine.calls if call.finished]
    assert [[list(action.response_token_ids) for action in part.actions] for part in good] == [
        call.token_ids for call in finished
    ]
    assert len(good) <= statuses.count(200)
    for record in log.records:
        assert decode(encode(record)) == record
    for name in {part.trajectory_id for part in ends}:
        steps = [step for step in log.trajectory(name).steps if step.status == "ok" and step.choice == 0]
        assert [list(step.prompt_token_ids) for step in steps] == [call.prompt_token_ids for call in finished]


@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_spans(form):
    kind = {"json": "application/json", "protobuf": "application/x-protobuf"}[form]
    with serve_receiver() as receiver:
        for number, chance in rounds():
            trace = chance.choice(TRACES)
            body = mutate_json(trace, chance) if form == "json" else mutate_bytes(as_protobuf(trace), chance)
            with naming(number, body):
                status, answer = receiver.post(body, kind)
                assert status in (200, 400), answer
                for record in receiver.log.records:
                    assert decode(encode(record)) == record
            receiver.log.records.clear()
    assert number - FIRST > LEAST_PER_SECOND * SECONDS


class OneObject:
    """An object store with one object in it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def get(self, _key: str, offset: int = 0, size: int | None = None) -> bytes:
        part = self.content[offset:]
        return part[:size]


def test_segments():
    """Changed bytes give records that were written, or none. A frame with its own checksum is refused, or read."""
    records = [StoredRecord(one, encode(one)) for name in ("a.0-0", "a.1-0") for one in attempt_with_everything(name)]
    owned = {owner: [one for one in records if one.record.trajectory_id == owner] for owner in ("a.0-0", "a.1-0")}
    content, _ = build_segment(NAME, owned)
    written = {one.content for one in records}
    for number, chance in rounds():
        is_reframed = chance.random() < 0.3
        changed = reframed(content, chance) if is_reframed else mutate_bytes(content, chance)
        with naming(number, changed):
            for sealed in (sealed_in(changed), salvage_segment(changed, NAME)):
                found = list(read_records(changed, sealed))
                assert is_reframed or written.issuperset(found)
                for one in found:
                    with suppress(CorruptRecordError):
                        decode(one)
    assert number - FIRST > LEAST_PER_SECOND * SECONDS


def sealed_in(content: bytes):
    try:
        return read_footer(OneObject(content), "key")
    except CorruptRecordError:
        return None


def read_records(content: bytes, sealed) -> Iterator[bytes]:
    for chunk in sealed.footer.chunks if sealed else ():
        with suppress(CorruptRecordError):
            yield from read_chunk(OneObject(content), "key", chunk)


def reframed(content: bytes, chance: Random) -> bytes:
    """Change what is inside a frame, and give it its checksum: the work of another writer, with its own bugs."""
    frames, num_left = read_frames(content)
    at = chance.randrange(len(frames))
    if chance.random() < 0.5:
        packed = mutate_bytes(zstandard.ZstdDecompressor().decompress(frames[at]), chance)
        frames[at] = zstandard.ZstdCompressor().compress(packed)
    else:
        frames[at] = mutate_bytes(frames[at], chance) or b"x"
    stored = [frame(one) for one in frames]
    trailer = bytearray(content[-num_left:])
    trailer[:4] = len(stored[-1]).to_bytes(4, "little")
    return b"".join(stored) + bytes(trailer)


def test_logs():
    """A changed log gives records that were written, as many as come before the change, and nothing else."""
    contents = [encode(one) for one in attempt_with_everything("a.0-0")]
    stored = b"".join(frame(one) for one in contents)
    for number, chance in rounds():
        changed = mutate_bytes(stored, chance)
        with naming(number, changed):
            found, num_left = read_frames(changed)
            assert set(found) <= set(contents)
            assert sum(len(frame(one)) for one in found) + num_left == len(changed)
            for one in (mutate_bytes(chance.choice(contents), chance) for _ in range(5)):
                try:
                    record = decode(one)
                except CorruptRecordError:
                    continue
                assert decode(encode(record)) == record
    assert number - FIRST > LEAST_PER_SECOND * SECONDS


def test_task_files():
    for number, chance in rounds():
        lines = [mutate_json(chance.choice(TASKS), chance) for _ in range(chance.choice([1, 1, 3]))]
        with naming(number, b"\n".join(lines)):
            try:
                tasks = parse_tasks(lines, subject="tasks.jsonl", run="r")
            except BadInputError:
                continue
            for task in tasks:
                assert decode(encode(task)) == task
                msgspec.json.encode(task.view())
    assert number - FIRST > LEAST_PER_SECOND * SECONDS


async def test_the_engine_of_these_tests_refuses_nonsense(register_engine, settings, redis):
    """Otherwise its own failures would look like the gateway's."""
    async with (
        open_gateway(
            settings.model_copy(update={"api_key": "operator-key"}), redis, register_engine, StrictEngine(), MemoryLog()
        ) as gateway,
        aiohttp.ClientSession() as session,
    ):
        body = {"model": gateway.engine.model, "messages": [], "n": 1 << 40}
        async with session.post(f"{gateway.engine.url}/v1/chat/completions", json=body) as reply:
            assert reply.status == 400
