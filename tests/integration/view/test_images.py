"""Images of messages and tools' answers: one address, raster images alone, and nothing that a message only names."""

import base64
import struct
import zlib

import msgspec
import pytest

from agent_layer.gateway.rollouts.media import stored_part
from agent_layer.schema.ids import content_hash
from agent_layer.schema.messages import refer_to
from agent_layer.schema.step import Action, Observation, StepState
from agent_layer.view.reads import images

from ...builders import attempt, call, content
from ...stored import write_segment
from .test_view import viewed  # noqa: F401 - the store that the API's own tests read

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.owned=1'></svg>"
REMOTE = "https://evil.invalid/i.png"


def make_png(size: int = 8) -> bytes:
    """A picture of noise, so that it is stored as a content of its own."""
    rows = b"".join(
        b"\0" + zlib.compress(bytes([row, size]) * size * 3)[: size * 3].ljust(size * 3) for row in range(size)
    )
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def data_url(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def store_message(store, name, parts, said=None, outputs=()):
    """Store a trajectory whose prompt is one message, as the gateway stores it, and what tools answered to its step."""
    part = stored_part(msgspec.json.encode({"role": "user", "content": parts}))
    bodies = {**part.media, part.hash: part.body}
    records = [content(name, body) for body in bodies.values()]
    answer = Action(message={"role": "assistant", "content": said or "seen"})
    asked = call(name, "a", answer, state=StepState(messages=[part.hash]))
    own = {"trajectory_id": name, "run": "r", "name": "look", "at": 3.0, "call_id": f"{name}/a"}
    observed = [Observation(**own, observation_id=f"{name}.{at}", output=one) for at, one in enumerate(outputs)]
    write_segment(store, *attempt(name, *records, *asked, *observed))


def shown(url):
    return {"type": "image_url", "image_url": {"url": url}}


def marks_of(viewed, name):  # noqa: F811
    step = viewed.get(f"/api/v1/trajectories/{name}")["steps"][0]
    return list(images.image_names([step["new_messages"], step["message"]]))


def fetch(viewed, name, mark, status=200):  # noqa: F811
    return viewed.ask(f"/api/v1/trajectories/{name}/images/{mark}", status)[1]


@pytest.mark.parametrize("size", [1, 64], ids=["inside its message", "a content of its own"])
def test_an_image_has_an_address_and_its_message_a_mark(viewed, size):  # noqa: F811
    png = make_png(size)
    store_message(viewed.store, "i.0-0", [{"type": "text", "text": "look"}, shown(data_url(png, "image/x-lie"))])
    (mark,) = marks_of(viewed, "i.0-0")
    answer = fetch(viewed, "i.0-0", mark)

    assert viewed.get("/api/v1/trajectories/i.0-0")["steps"][0]["new_messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        shown({"$image": mark}),
    ]
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == f'inline; filename="{mark}.png"'
    assert "img-src 'self';" in answer.headers["Content-Security-Policy"]
    assert images.read_image(images.Source(viewed.settings, viewed.store), _asked("i.0-0", mark)).content == png


def test_images_of_answers_and_of_other_dialects_are_found(viewed):  # noqa: F811
    png = make_png(8)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    store_message(viewed.store, "i.0-0", [{"type": "image", "source": source}], said=[shown(data_url(make_png(4)))])

    assert [fetch(viewed, "i.0-0", mark).headers["Content-Type"] for mark in marks_of(viewed, "i.0-0")] == [
        "image/png"
    ] * 2


def base64_of(content):
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    "form",
    [
        lambda png: [{"type": "text", "text": "seen"}, shown(data_url(png))],
        lambda png: [{"type": "input_image", "image_url": data_url(png)}],
        lambda png: [
            {"type": "tool_result", "content": [{"type": "image", "source": anthropic(png)}, {"text": "seen"}]},
        ],
        lambda png: {"content": [{"type": "image", "data": base64_of(png), "mimeType": "image/png"}]},
        lambda png: {"observation": "seen", "images": [refer_to(content_hash(msgspec.json.encode(data_url(png))))]},
        data_url,
    ],
    ids=["chat", "responses", "anthropic", "mcp", "environment", "string"],
)
def test_images_in_what_a_tool_answered_are_found_in_each_form(viewed, form):  # noqa: F811
    png = make_png(64)
    store_message(viewed.store, "i.0-0", [shown(data_url(png))], outputs=[form(png)])
    step = viewed.get("/api/v1/trajectories/i.0-0")["steps"][0]
    (observed,) = step["observations"]
    (mark,) = images.image_names(observed["output"])

    assert base64_of(png) not in msgspec.json.encode(step).decode()
    assert fetch(viewed, "i.0-0", mark).headers["Content-Type"] == "image/png"
    assert images.read_image(images.Source(viewed.settings, viewed.store), _asked("i.0-0", mark)).content == png


def anthropic(png):
    return {"type": "base64", "media_type": "image/png", "data": base64_of(png)}


def test_tool_answers_have_the_limits_of_messages(viewed, monkeypatch):  # noqa: F811
    monkeypatch.setattr(images, "MOST_BYTES", 2_048)
    large = data_url(b"\x89PNG\r\n\x1a\n".ljust(4_096))
    store_message(viewed.store, "i.0-0", "look", outputs=[[shown(data_url(SVG)), shown(large), shown(REMOTE)]])
    (observed,) = viewed.get("/api/v1/trajectories/i.0-0")["steps"][0]["observations"]
    marks = list(images.image_names(observed["output"]))

    assert [fetch(viewed, "i.0-0", mark, 404).content_type for mark in marks] == ["application/json"] * 2
    assert observed["output"][2] == shown(REMOTE)


def test_each_image_is_hashed_once_however_many_are_asked_for(viewed, monkeypatch):  # noqa: F811
    outputs = [shown(data_url(make_png(size))) for size in range(8, 20)]
    store_message(viewed.store, "i.0-0", "look", outputs=outputs)
    step = viewed.get("/api/v1/trajectories/i.0-0")["steps"][0]
    hashed = []
    monkeypatch.setattr(images, "_name_of", lambda url: hashed.append(url) or content_hash(msgspec.json.encode(url)))
    source = images.Source(viewed.settings, viewed.store)
    for mark in images.image_names(step["observations"]):
        images.read_image(source, _asked("i.0-0", mark))

    assert len(hashed) == len(outputs)


def test_what_is_nested_too_deeply_is_said_so(viewed):  # noqa: F811
    deep = msgspec.json.decode(b"[" * 800 + b"]" * 800)
    store_message(viewed.store, "i.0-0", deep, said=deep, outputs=[deep, "sound"])
    step = viewed.get("/api/v1/trajectories/i.0-0")["steps"][0]

    assert [step["new_messages"][0]["content"], step["message"]["content"]] == [images.TOO_DEEP] * 2
    assert [one["output"] for one in step["observations"]] == [images.TOO_DEEP, "sound"]
    assert viewed.get("/api/v1/trajectories/i.0-0/steps/0")["messages"] == [images.TOO_DEEP]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"\xff\xd8\xff\xe0", "jpeg"),
        (b"GIF89a", "gif"),
        (b"GIF87a", "gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "webp"),
        (b"RIFF\0\0\0\0WAVE", None),
        (SVG, None),
        (b"<!doctype html><script>1</script>", None),
        (b"\0\0\1\0", None),
        (b"BM", None),
        (b"", None),
    ],
)
def test_the_first_bytes_say_what_an_image_is(start, kind):
    assert images.sniff_kind(start + b"rest" * bool(start)) == kind


@pytest.mark.parametrize(
    "url",
    [
        data_url(SVG, "image/svg+xml"),
        data_url(SVG, "image/png"),
        data_url(b"<script>alert(1)</script>" * 40, "image/gif"),
        "data:image/png;base64,%%%not base64",
        data_url(b"\x89PNG\r\n\x1a\n".ljust(4_096)),
    ],
    ids=["svg", "svg that lies", "html that lies", "no base64", "too large"],
)
def test_what_is_no_raster_image_is_refused(viewed, url, monkeypatch):  # noqa: F811
    monkeypatch.setattr(images, "MOST_BYTES", 2_048)
    store_message(viewed.store, "i.0-0", [shown(url)])
    (mark,) = marks_of(viewed, "i.0-0")

    assert fetch(viewed, "i.0-0", mark, 404).content_type == "application/json"


def test_what_a_message_only_names_is_neither_marked_nor_fetched(viewed):  # noqa: F811
    parts = [shown(REMOTE), shown("file:///etc/passwd"), shown("data:text/html;base64,PHA+"), {"$image": "0" * 32}]
    store_message(viewed.store, "i.0-0", parts)
    step = viewed.get("/api/v1/trajectories/i.0-0")["steps"][0]

    assert step["new_messages"][0]["content"] == parts
    fetch(viewed, "i.0-0", "0" * 32, 404)
    fetch(viewed, "i.0-0", step["call_id"].replace("/", "-"), 404)


def test_a_message_is_not_served_as_an_image(viewed):  # noqa: F811
    store_message(viewed.store, "i.0-0", [{"type": "text", "text": "look"}])
    for name in viewed.store.get("i.0-0").steps[0].state.messages:
        fetch(viewed, "i.0-0", name, 404)


def test_images_need_what_the_rest_needs(viewed):  # noqa: F811
    store_message(viewed.store, "i.0-0", [shown(data_url(make_png()))])
    (mark,) = marks_of(viewed, "i.0-0")

    assert viewed.ask(f"/api/v1/trajectories/i.0-0/images/{mark}", 401, token="t")[1].content_type == "application/json"
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert viewed.ask(f"/api/v1/trajectories/i.0-0/images/{mark}", 403, headers=headers)[1].status == 403


def _asked(name, mark):
    return images.Asked({"trajectory": name, "image": mark}, {})
