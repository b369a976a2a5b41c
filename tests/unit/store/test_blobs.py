"""Contents that become blobs: large ones, and media worth their own object."""

import json

import pytest

from agent_layer.gateway.rollouts.media import stored_part
from agent_layer.schema.step import Content
from agent_layer.store.segments.blobs import BlobLimits, is_large

LIMITS = BlobLimits(any_bytes=1_000, media_bytes=300)


def is_blob(body):
    return is_large(Content(trajectory_id="x.0-0", hash="h", body=body), LIMITS)


@pytest.mark.parametrize("kind", ["image/png", "audio/wav", "video/mp4; codecs=vp9", "application/pdf", ""])
@pytest.mark.parametrize(("size", "expected"), [(200, False), (400, True)])
def test_media_that_the_gateway_takes_out_is_known_again_whatever_it_is(kind, size, expected):
    [taken_out] = stored_part(json.dumps([f"data:{kind};base64,{'A' * 260}"]).encode()).media.values()

    assert is_blob(taken_out.replace(b"A" * 260, b"A" * size)) is expected


@pytest.mark.parametrize(
    "body",
    [
        json.dumps("data: " + "x" * 400),
        json.dumps("see data:image/png;base64," + "A" * 400),
        json.dumps({"url": "data:image/png;base64," + "A" * 400}),
        json.dumps('"data:image/png;base64,' + "A" * 400),
    ],
)
def test_text_is_no_media_whatever_it_speaks_of(body):
    assert not is_blob(body.encode())


def test_anything_larger_than_its_limit_is_an_object_of_its_own():
    assert not is_blob(b'"%b"' % (b"x" * 998))
    assert is_blob(b'"%b"' % (b"x" * 999))
