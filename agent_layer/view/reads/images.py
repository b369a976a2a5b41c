"""Images inside messages: a mark stands in their place, and each has one address, which serves raster images alone.

Messages hold images as ``data:`` URLs, or refer to a content that is one. The page never gets such a URL: it would be
as long as the image, and may hold a document. An address of another host stays what it is: text.
"""

import binascii
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.schema import JsonObject, Trajectory, content_hash, resolve
from agent_layer.view.reads.asked import Asked
from agent_layer.view.reads.source import Source

IMAGES: Final = "/trajectories/{trajectory}/images/{image}"
"""Address of an image, below the prefix."""
MOST_BYTES: Final = 16 * 1024 * 1024
_MARK: Final = "$image"
_HEAD: Final = "data:image/"
_QUOTED_HEAD: Final = b'"data:image'
_BASE64: Final = ";base64,"
_LONGEST_HEAD: Final = 200
_KINDS: Final = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
)
_WEBP: Final = slice(8, 12)


class Image(NamedTuple):
    """A raster image."""

    content: bytes
    kind: str
    """``png``, ``jpeg``, ``gif`` or ``webp``, as its first bytes say."""


def mark_images(value: object) -> object:
    """Return a message with ``{"$image": HASH}`` in place of each image that it holds."""
    if isinstance(value, str):
        return {_MARK: _name_of(value)} if _is_image(value) else value
    if isinstance(value, list):
        return [mark_images(one) for one in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("JsonObject", value)
    if (url := _source_url(fields)) is not None:
        return {_MARK: _name_of(url)}
    return {name: mark_images(one) for name, one in fields.items()}


def read_image(source: Source, asked: Asked) -> Image:
    """Return an image of a trajectory by the hash of its mark.

    Raises: NotFoundError: there is none, it is too large, or it is no PNG, JPEG, GIF or WebP.
    """
    name = asked.path["image"]
    whole = source.trajectory(asked.path["trajectory"])
    url = next((one for one in _urls(whole, source.store.contents(whole), name) if _name_of(one) == name), None)
    content = None if url is None else _decode(url)
    kind = None if content is None else sniff_kind(content)
    if content is None or kind is None:
        raise NotFoundError(
            f"image {name[:80]!r}: expected a PNG, JPEG, GIF or WebP of at most {MOST_BYTES >> 20} MB in a message of"
            " this trajectory, found none; nothing else is shown as an image"
        )
    return Image(content, kind)


def image_names(value: object) -> Iterator[str]:
    """Yield the hashes of the marks of a message."""
    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        if isinstance(name := fields.get(_MARK), str):
            yield name
        for one in fields.values():
            yield from image_names(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from image_names(one)


def sniff_kind(content: bytes) -> str | None:
    """Return the kind of a raster image by its first bytes, whatever its message claims; None: it is no such image."""
    if content.startswith(b"RIFF") and content[_WEBP] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _KINDS if content.startswith(magic)), None)


def _urls(whole: Trajectory, contents: Mapping[str, bytes], name: str) -> Iterator[str]:
    """Yield the image that is a content of its own under this hash, or all that stand in messages."""
    if name in contents:
        body = contents[name]
        if body.startswith(_QUOTED_HEAD):
            yield msgspec.json.decode(body, type=str)
        return
    names = dict.fromkeys(one for step in whole.steps for one in step.state.messages or ())
    for one in names:
        yield from _find_urls(resolve(contents, one))
    for step in whole.steps:
        yield from _find_urls(step.action.message)


def _find_urls(value: object) -> Iterator[str]:
    if isinstance(value, str):
        if _is_image(value):
            yield value
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from _find_urls(one)
    elif isinstance(value, dict):
        fields = cast("JsonObject", value)
        if (url := _source_url(fields)) is not None:
            yield url
        else:
            for one in fields.values():
                yield from _find_urls(one)


def _source_url(fields: JsonObject) -> str | None:
    """Return the URL of an image in the form of Anthropic's messages."""
    kind, content = fields.get("media_type"), fields.get("data")
    if fields.get("type") != "base64" or not isinstance(content, str) or not isinstance(kind, str):
        return None
    url = f"data:{kind}{_BASE64}{content}"
    return url if _is_image(url) else None


def _is_image(text: str) -> bool:
    return text.startswith(_HEAD) and _BASE64 in text[:_LONGEST_HEAD]


def _name_of(url: str) -> str:
    """Return the hash under which the gateway stores such a string."""
    return content_hash(msgspec.json.encode(url))


def _decode(url: str) -> bytes | None:
    """Return the bytes of a data URL; None: they are too many, or no base64."""
    text = url.partition(",")[2]
    if len(text) > MOST_BYTES * 4 // 3 + 4:
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=False)
    except (binascii.Error, ValueError):
        return None
