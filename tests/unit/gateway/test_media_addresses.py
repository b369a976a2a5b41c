"""Media of a rollout's key lie in its requests, or at an allowed domain: engines reach more than a box."""

import json

import msgspec
import pytest

from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.gateway.rollouts.media import check_media

DATA = "data:image/png;base64,iVBORw0KGgo="
ELSEWHERE = [
    "http://10.0.0.1/secret.png",
    "https://evil.example/x?leak=1",
    "HTTPS://evil.example/x",
    "file:///etc/passwd",
    "file:/etc/passwd",
    " \t\nhttp://10.0.0.1/",
    "ht\ntp://10.0.0.1/",
    "ftp://evil.example/x",
    "s3://bucket/key",
    "/etc/passwd",
    "//evil.example/x.png",
    "https://good.example@evil.example/x",
    "https://evil.example\\@good.example/x",
    "https://good.example.evil.example/x",
    "https://evilgood.example/x",
    "http:///x",
]
PARTS = [
    lambda url: {"type": "image_url", "image_url": {"url": url}},
    lambda url: {"type": "image_url", "image_url": url},
    lambda url: {"type": "input_image", "image_url": url},
    lambda url: {"image_url": url},
    lambda url: {"type": "audio_url", "audio_url": {"url": url}},
    lambda url: {"type": "video_url", "video_url": {"url": url}},
    lambda url: {"type": "image", "source": {"type": "url", "url": url}},
    lambda url: {"type": "document", "source": {"type": "content", "content": [{"image_url": url}]}},
    lambda url: {"type": "file", "file": {"file_url": url}},
    lambda url: {"type": "video", "video": [DATA, url]},
    lambda url: {"type": "of_tomorrow", "image": url},
]


def check(*parts, role="user", domains=("good.example", "*.media.example")):
    message = json.dumps({"role": role, "content": list(parts)}).encode()
    check_media(
        [msgspec.Raw(b'{"role":"system","content":"see http://x"}'), msgspec.Raw(message)], domains, "rollout r"
    )


@pytest.mark.parametrize("url", ELSEWHERE)
def test_what_lies_elsewhere_is_refused_in_every_part_of_every_role(url):
    for part in PARTS:
        for role in ("user", "tool", "assistant", "system"):
            with pytest.raises(RefusedError, match="data URIs"):
                check({"type": "text", "text": "look"}, part(url), role=role)


@pytest.mark.parametrize("url", [DATA, "DATA:image/png;base64,AA", " data:,x"])
def test_what_lies_in_the_request_passes(url):
    for part in PARTS:
        check(part(url), domains=())


@pytest.mark.parametrize(
    "url", ["https://good.example/x.png", "http://a.media.example/y", "https://b.a.media.example:8443/"]
)
def test_an_allowed_domain_passes(url):
    for part in PARTS:
        check(part(url))


def test_texts_may_name_any_address():
    check(
        {"type": "text", "text": "http://10.0.0.1/ and file:///etc/passwd"},
        {"type": "output_text", "text": "x", "annotations": [{"type": "url_citation", "url": "https://x.example"}]},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_data": DATA, "filename": "c:notes.txt"}},
        {"type": "file", "file": {"file_id": "file-abc"}},
    )
