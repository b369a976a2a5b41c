"""Images leave the messages that show them: each is stored once, and messages refer to it by its hash.

An image, sound, video or file that lies elsewhere would be fetched by the engine, which reaches more than an agent in a
box. So messages of a rollout's key hold their media themselves, or name a domain that the operator allows.

An agent sends the same screenshot again with every turn. In what is stored, a reference (``schema/contents.py``)
replaces the string with the data URL, and the string itself is a content of its own.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from agent_layer.gateway.dialects.chat import MessageFacts, ToolFacts
from agent_layer.gateway.dialects.refusals import RefusedError
from agent_layer.schema import UNREADABLE, as_json_object, as_json_objects, content_hash, refer_to
from agent_layer.translation import TextMemo

_QUOTED: Final = b'"data:'
_HEAD: Final = re.compile(rb'(?<!\\)"data:(?:[^"\\,]|\\/){0,200}?;base64,')
"""A quote that is not escaped begins a JSON string."""
_COLON: Final = re.compile(rb"\s*:")
_LEAST_BYTES: Final = 256
"""Shorter ones cost less than their reference and record."""


class Part(msgspec.Struct, frozen=True):
    """A message or tool list in its stored form."""

    hash: str
    body: bytes
    media: dict[str, bytes]
    """JSON strings by hash, to which the body refers."""


def stored_part(body: bytes) -> Part:
    """Return the stored form of a JSON text."""
    media: dict[str, bytes] = {}
    if b";base64," in body:
        body = b"".join(_without_urls(body, media))
    return Part(content_hash(body), body, media)


def name_stored(facts: MessageFacts | ToolFacts, text: msgspec.Raw) -> str:
    """Return the content hash of the stored form of a JSON text that holds this."""
    return _STORED_NAMES.find(facts.hash, text) if facts.has_files else facts.hash


_STORED_NAMES: Final = TextMemo(lambda _, text: stored_part(bytes(text)).hash)


def _without_urls(body: bytes, media: dict[str, bytes]) -> Iterator[bytes]:
    kept = 0
    for begin, end in _find_urls(body):
        text = body[begin:end]
        name = content_hash(text)
        media[name] = text
        yield body[kept:begin]
        yield msgspec.json.encode(refer_to(name))
        kept = end
    yield body[kept:]


def _find_urls(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each long data URL begins and ends, quotes included.

    One string after the other: a pattern for all of a body would keep the interpreter's lock from its first byte to its
    last. The search for an end stops at the next quote, and so before the next beginning.
    """
    begin = body.find(_QUOTED)
    while begin >= 0:
        head = _HEAD.match(body, begin)
        end = _end_of_string(body, head.end()) if head else None
        if end is not None and end - begin >= _LEAST_BYTES and not _COLON.match(body, end):
            yield begin, end
        begin = body.find(_QUOTED, end or begin + len(_QUOTED))


def _end_of_string(body: bytes, begin: int) -> int | None:
    """Where a string ends that is escaped nowhere but before slashes; None: it has other escapes."""
    end = body.find(b'"', begin)
    if end < 0 or body.count(b"\\", begin, end) != body.count(b"\\/", begin, end):
        return None
    return end + 1


REMOTE_MEDIA: Final = "remote_media"
"""Code of a request whose media lie elsewhere."""
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "reasoning"})
_TEXTS: Final = frozenset({"type", "text", "filename", "title", "name", "detail", "media_type", "format", "id"})
"""Members of a part that no engine fetches."""
_ADDRESSES: Final = frozenset({"url", "image_url", "audio_url", "video_url", "file_url", "image", "video", "audio"})
"""Members that some engines open whatever they hold, paths of files included."""
_DROPPED: Final = str.maketrans("", "", "\t\r\n")
"""Characters that parsers of URLs leave out."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DATA: Final = "data:"
_WEB: Final = frozenset({"http", "https"})
_AMBIGUOUS: Final = re.compile(r"[\\\s@\x00-\x20\x7f]")
"""Parsers of URLs disagree about the host of what holds these."""
_MAX_SHOWN: Final = 100
_MAX_ADDRESS: Final = 1 << 13
_BLANKS: Final = "".join(map(chr, range(33)))


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")


_CONTENT: Final = msgspec.json.Decoder(_Message)
_PARTS: Final = msgspec.json.Decoder(list[object])


def check_media(messages: Iterable[msgspec.Raw], domains: Collection[str], subject: str) -> None:
    """Check that all media of a request lie in it, or at an allowed domain.

    Args:
        messages: as chat completions, which an engine is sent.
        domains: hosts, or ``*.HOST`` for all below one.
        subject: names the rollout in an error.

    Raises: RefusedError: one lies elsewhere.
    """
    for message in messages:
        for address in _FOUND_ADDRESSES.find(content_hash(message), message):
            if not _is_allowed(address, domains):
                raise RefusedError(
                    400,
                    REMOTE_MEDIA,
                    f"{subject}: expected images, audio, video and files as data URIs (data:image/png;base64,…), found"
                    f" {address[:_MAX_SHOWN]!r}; send the bytes, or let the operator name its host in"
                    " AGENT_LAYER_MEDIA_DOMAINS",
                )


def _find_addresses(message: msgspec.Raw) -> Iterator[str]:
    """Yield all in a message's parts that an engine could open, but for data URIs."""
    try:
        content = bytes(_CONTENT.decode(message).content)
        parts = _PARTS.decode(content) if content[:1] == b"[" else []
    except UNREADABLE:
        return
    for part in as_json_objects(parts):
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in _TEXT_PARTS:
            yield from _find_in(part)


_TEXT_BYTES: Final = 64
"""What a text takes beside its letters."""
_FOUND_ADDRESSES: Final = TextMemo(
    lambda _, message: tuple(_find_addresses(message)),
    measure=lambda addresses: sum(_TEXT_BYTES + len(one) for one in addresses),
)


def _find_in(value: object, name: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, member in as_json_object(cast("object", value)).items():
                yield from _find_in(member, key) if key not in _TEXTS else ()
        case list():
            for member in cast("list[object]", value):
                yield from _find_in(member, name)
        case str():
            address = value[:_MAX_ADDRESS].translate(_DROPPED).lstrip(_BLANKS)
            if address[: len(_DATA)].lower() != _DATA and (_SCHEME.match(address) or (address and name in _ADDRESSES)):
                yield address
        case _:
            return


def _is_allowed(address: str, domains: Collection[str]) -> bool:
    try:
        url = urlsplit(address)
        host = (url.hostname or "").rstrip(".")
    except ValueError:
        return False
    if url.scheme not in _WEB or not host or _AMBIGUOUS.search(address):
        return False
    return any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in domains)
