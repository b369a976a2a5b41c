"""Images in messages and in what tools answered: a mark stands in their place, and each has one address, which serves
raster images alone.

Both hold images as ``data:`` URLs, in Anthropic's or MCP's form, or refer to a content that is one. The page never
gets such a URL: it would be as long as the image, and may hold a document. An address of another host stays what it is:
text.
"""

import binascii
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, cast

import msgspec

from agent_layer.errors import NotFoundError
from agent_layer.schema import JsonObject, Trajectory, content_hash, read_json, resolve_in
from agent_layer.view.reads.params import RequestParams
from agent_layer.view.reads.source import ReadContext

IMAGES: Final = "/trajectories/{trajectory}/images/{image}"
"""Address of an image, below the prefix."""
MAX_BYTES: Final = 16 * 1024 * 1024
_MARK: Final = "$image"
_HEAD: Final = "data:image/"
_QUOTED_HEAD: Final = b'"data:image'
_BASE64: Final = ";base64,"
_MAX_HEAD_LENGTH: Final = 200
_KINDS: Final = (
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"\xff\xd8\xff", "jpeg"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
)
_WEBP: Final = slice(8, 12)
_HINTS: Final = (_HEAD.encode(), b'"data"')
"""What JSON with an image inside has."""


class Image(NamedTuple):
    """A raster image."""

    content: bytes
    kind: str
    """``png``, ``jpeg``, ``gif`` or ``webp``, as its first bytes say."""


def show_value(contents: Mapping[str, bytes], value: object) -> object:
    """Return a message or an answer of a tool with its references resolved and its images marked."""
    return mark_images(resolve_in(contents, value))


def mark_images(value: object) -> object:
    """Return a value with ``{"$image": HASH}`` in place of each image that it holds."""
    if isinstance(value, str):
        return {_MARK: _hash_url(value)} if _is_image(value) else value
    if isinstance(value, list):
        return [mark_images(one) for one in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("JsonObject", value)
    if (url := _source_url(fields)) is not None:
        return {_MARK: _hash_url(url)}
    return {name: mark_images(one) for name, one in fields.items()}


def read_image(source: ReadContext, params: RequestParams) -> Image:
    """Return an image of a trajectory by the hash of its mark.

    Raises: NotFoundError: there is none, it is too large, or it is no PNG, JPEG, GIF or WebP.
    """
    name = params.path["image"]
    whole = source.trajectory(params.path["trajectory"])
    contents = source.store.contents(whole)
    if name in contents:
        body = contents[name]
        found = read_json(body) if body.startswith(_QUOTED_HEAD) else None
        url = found if isinstance(found, str) else None
    else:
        url = source.images(whole, lambda: _find_inline(whole, contents)).get(name)
    content = None if url is None else _decode(url)
    kind = None if content is None else sniff_kind(content)
    if content is None or kind is None:
        raise NotFoundError(
            f"image {name[:80]!r}: expected a PNG, JPEG, GIF or WebP of at most {MAX_BYTES >> 20} MB in a message or"
            " a tool's answer of this trajectory, found none; nothing else is shown as an image"
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


def _find_inline(whole: Trajectory, contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the images that stand in messages and answers of tools themselves; those they refer to have a name."""
    names = dict.fromkeys(one for step in whole.steps for one in step.state.messages or ())
    bodies = (contents[name] for name in names if name in contents)
    values = chain(
        (read_json(body) for body in bodies if any(hint in body for hint in _HINTS)),
        (step.action.message for step in whole.steps),
        (one.output for one in whole.observations),
    )
    return {_hash_url(url): url for value in values for url in _find_urls(value)}


def _find_urls(value: object) -> Iterator[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            if _is_image(one):
                yield one
        elif isinstance(one, list):
            left += cast("list[object]", one)
        elif isinstance(one, dict):
            fields = cast("JsonObject", one)
            url = _source_url(fields)
            left += fields.values() if url is None else [url]


def _source_url(fields: JsonObject) -> str | None:
    """Return the URL of an image in the form of Anthropic's messages, or of tools that speak MCP."""
    content = fields.get("data")
    kind = fields.get({"base64": "media_type", "image": "mimeType"}.get(str(fields.get("type")), ""))
    if not isinstance(content, str) or not isinstance(kind, str):
        return None
    url = f"data:{kind}{_BASE64}{content}"
    return url if _is_image(url) else None


def _is_image(text: str) -> bool:
    return text.startswith(_HEAD) and _BASE64 in text[:_MAX_HEAD_LENGTH]


def _hash_url(url: str) -> str:
    """Return the hash under which the gateway stores such a string."""
    return content_hash(msgspec.json.encode(url))


def _decode(url: str) -> bytes | None:
    """Return the bytes of a data URL; None: they are too many, or no base64."""
    text = url.partition(",")[2]
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=False)
    except (binascii.Error, ValueError):
        return None
