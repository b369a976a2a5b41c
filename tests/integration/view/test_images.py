"""Images of messages and tools' answers: one address, raster images alone, and nothing that a message only names."""

import base64

import msgspec
import pytest

from agent_layer.schema.ids import content_hash
from agent_layer.schema.messages import TOO_DEEP, refer_to
from agent_layer.view.reads import images

from ...pictures import REMOTE, SVG, data_url, image_part, make_png, store_message


def read_marks(empty, name):
    step = empty.get(f"/api/v1/trajectories/{name}")["steps"][0]
    return list(images.image_names([step["new_messages"], step["message"]]))


def fetch(empty, name, mark, status=200):
    return empty.ask(f"/api/v1/trajectories/{name}/images/{mark}", status)[1]


@pytest.mark.parametrize("size", [1, 64], ids=["inside its message", "a content of its own"])
def test_an_image_has_an_address_and_its_message_a_mark(empty, size):
    png = make_png(size)
    store_message(empty.store, "i.0-0", [{"type": "text", "text": "look"}, image_part(data_url(png, "image/x-lie"))])
    (mark,) = read_marks(empty, "i.0-0")
    answer = fetch(empty, "i.0-0", mark)

    assert empty.get("/api/v1/trajectories/i.0-0")["steps"][0]["new_messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        image_part({"$image": mark}),
    ]
    assert answer.headers["Content-Type"] == "image/png"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"] == f'inline; filename="{mark}.png"'
    assert "img-src 'self';" in answer.headers["Content-Security-Policy"]
    assert images.read_image(empty.source, _fetch("i.0-0", mark)).content == png


def test_images_of_answers_and_of_other_dialects_are_found(empty):
    png = make_png(8)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png).decode()}
    store_message(
        empty.store, "i.0-0", [{"type": "image", "source": source}], reply=[image_part(data_url(make_png(4)))]
    )

    assert [fetch(empty, "i.0-0", mark).headers["Content-Type"] for mark in read_marks(empty, "i.0-0")] == [
        "image/png"
    ] * 2


def to_base64(content):
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    "form",
    [
        lambda png: [{"type": "text", "text": "seen"}, image_part(data_url(png))],
        lambda png: [{"type": "input_image", "image_url": data_url(png)}],
        lambda png: [
            {"type": "tool_result", "content": [{"type": "image", "source": anthropic(png)}, {"text": "seen"}]},
        ],
        lambda png: {"content": [{"type": "image", "data": to_base64(png), "mimeType": "image/png"}]},
        lambda png: {"observation": "seen", "images": [refer_to(content_hash(msgspec.json.encode(data_url(png))))]},
        data_url,
    ],
    ids=["chat", "responses", "anthropic", "mcp", "environment", "string"],
)
def test_images_in_what_a_tool_answered_are_found_in_each_form(empty, form):
    png = make_png(64)
    store_message(empty.store, "i.0-0", [image_part(data_url(png))], outputs=[form(png)])
    step = empty.get("/api/v1/trajectories/i.0-0")["steps"][0]
    (observed,) = step["observations"]
    (mark,) = images.image_names(observed["output"])

    assert to_base64(png) not in msgspec.json.encode(step).decode()
    assert fetch(empty, "i.0-0", mark).headers["Content-Type"] == "image/png"
    assert images.read_image(empty.source, _fetch("i.0-0", mark)).content == png


def anthropic(png):
    return {"type": "base64", "media_type": "image/png", "data": to_base64(png)}


def test_tool_answers_have_the_limits_of_messages(empty, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 2_048)
    large = data_url(b"\x89PNG\r\n\x1a\n".ljust(4_096))
    store_message(
        empty.store, "i.0-0", "look", outputs=[[image_part(data_url(SVG)), image_part(large), image_part(REMOTE)]]
    )
    (observed,) = empty.get("/api/v1/trajectories/i.0-0")["steps"][0]["observations"]
    marks = list(images.image_names(observed["output"]))

    assert [fetch(empty, "i.0-0", mark, 404).content_type for mark in marks] == ["application/json"] * 2
    assert observed["output"][2] == image_part(REMOTE)


def test_each_image_is_hashed_once_however_many_are_asked_for(empty, monkeypatch):
    outputs = [image_part(data_url(make_png(size))) for size in range(8, 20)]
    store_message(empty.store, "i.0-0", "look", outputs=outputs)
    step = empty.get("/api/v1/trajectories/i.0-0")["steps"][0]
    hashed = []
    monkeypatch.setattr(images, "_hash_url", lambda url: hashed.append(url) or content_hash(msgspec.json.encode(url)))
    source = empty.source
    for mark in images.image_names(step["observations"]):
        images.read_image(source, _fetch("i.0-0", mark))

    assert len(hashed) == len(outputs)


def test_what_is_nested_too_deeply_is_said_so(empty):
    deep = msgspec.json.decode(b"[" * 800 + b"]" * 800)
    store_message(empty.store, "i.0-0", deep, reply=deep, outputs=[deep, "sound"])
    step = empty.get("/api/v1/trajectories/i.0-0")["steps"][0]

    (message,) = empty.get("/api/v1/trajectories/i.0-0/steps/0")["messages"]
    shown = [step["new_messages"][0]["content"], step["message"]["content"], message["content"]]
    assert [find_innermost(one) for one in shown] == [TOO_DEEP] * 3
    assert [find_innermost(one["output"]) for one in step["observations"]] == [TOO_DEEP, "sound"]


def find_innermost(value):
    while isinstance(value, list) and value:
        (value,) = value
    return value


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
def test_what_is_no_raster_image_is_refused(empty, url, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 2_048)
    store_message(empty.store, "i.0-0", [image_part(url)])
    (mark,) = read_marks(empty, "i.0-0")

    assert fetch(empty, "i.0-0", mark, 404).content_type == "application/json"


def test_what_a_message_only_names_is_neither_marked_nor_fetched(empty):
    parts = [
        image_part(REMOTE),
        image_part("file:///etc/passwd"),
        image_part("data:text/html;base64,PHA+"),
        {"$image": "0" * 32},
    ]
    store_message(empty.store, "i.0-0", parts)
    step = empty.get("/api/v1/trajectories/i.0-0")["steps"][0]

    assert step["new_messages"][0]["content"] == parts
    fetch(empty, "i.0-0", "0" * 32, 404)
    fetch(empty, "i.0-0", step["call_id"].replace("/", "-"), 404)


def test_a_message_is_not_served_as_an_image(empty):
    store_message(empty.store, "i.0-0", [{"type": "text", "text": "look"}])
    for name in empty.store.get("i.0-0").steps[0].state.messages:
        fetch(empty, "i.0-0", name, 404)


def test_images_need_what_the_rest_needs(empty):
    store_message(empty.store, "i.0-0", [image_part(data_url(make_png()))])
    (mark,) = read_marks(empty, "i.0-0")

    assert empty.ask(f"/api/v1/trajectories/i.0-0/images/{mark}", 401, token="t")[1].content_type == "application/json"
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert empty.ask(f"/api/v1/trajectories/i.0-0/images/{mark}", 403, headers=headers)[1].status == 403


def _fetch(name, mark):
    return images.RequestParams({"trajectory": name, "image": mark}, {})
