"""Texts inside texts: what base64, hexadecimal digits, reversed letters and other plain encodings hide."""

import base64
import binascii
import codecs
import gzip
import html
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_MAX_DEPTH: Final = 3
_MAX_TEXTS: Final = 2000
"""Texts that one text may hide; beyond it the rest is not looked at."""
_MAX_BYTES: Final = 1 << 20
_MIN_TOKEN: Final = 8
"""Characters of what may be encoded, and is no short word."""
_MIN_FILE: Final = 32
"""Bytes of a file that is no text, at least; the texts inside are as ``strings`` finds them."""
_INSIDE: Final = re.compile(rb"[ -~]{6,}")
_NUM_BEFORE: Final = 20
"""Characters before a place that tell it from others."""


class HiddenText(NamedTuple):
    """A text, and how it was found in another."""

    encoding: str
    """Such as ``base64+reversed``, innermost last; empty: it stands there plainly."""
    before: str
    """What stands before it, digits as ``#``."""
    text: str


def find_texts(text: str) -> Iterator[HiddenText]:
    """Yield the text itself and what it hides, each once, the nearest first."""
    waiting, seen = [HiddenText("", "", text)], {text}
    for found in waiting:  # grows
        yield found
        if found.encoding.count("+") + bool(found.encoding) >= _MAX_DEPTH or len(seen) > _MAX_TEXTS:
            continue
        for encoding, before, inner in _decode(found.text):
            if inner not in seen:
                seen.add(inner)
                name = f"{found.encoding}+{encoding}".strip("+")
                waiting.append(HiddenText(name, found.before or before, inner))


def describe_place(text: str, start: int) -> str:
    """Return what stands before a place in a text, in a form that tasks of one template share; empty: in a list."""
    before = re.sub(r"\d+", "#", text[max(0, start - _NUM_BEFORE) : start].casefold())
    return before if start <= _NUM_BEFORE or re.search("[^\\W_]", before.replace("#", "")) else ""


def strip_encoded(text: str, encoding: str) -> str:
    """Return a text in lower case without what may be in an encoding, as ``find_texts`` names it."""
    token = _TOKENS.get(encoding.partition("+")[0])
    if token is None:
        return text
    flags = re.IGNORECASE | re.ASCII
    return re.sub(token[0].pattern, lambda one: one[0] * (len(one[0]) < _MIN_TOKEN), text, flags=flags)


def _decode(text: str) -> Iterator[tuple[str, str, str]]:
    for encoding, decode in _WHOLE.items():
        if (inner := decode(text)) != text and inner:
            yield encoding, "", inner
    for encoding, (pattern, decode_token) in _TOKENS.items():
        for match in pattern.finditer(text):
            if inner := decode_token(match[0]):
                yield encoding, describe_place(text, match.start()), inner


def _decode_bytes(content: bytes) -> str:
    """Return bytes as a text, of an image or the like the texts inside; empty: they are none."""
    try:
        if content[:2] in (b"x\x9c", b"x\xda", b"x\x01", b"x^"):
            content = zlib.decompressobj().decompress(content, _MAX_BYTES)
        elif content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)[:_MAX_BYTES]
        text = content.decode()
    except UnicodeDecodeError:
        return "\n".join(
            one.decode() for one in _INSIDE.findall(content.replace(b"\0", b"")) if len(content) >= _MIN_FILE
        )
    except (ValueError, OSError, EOFError, zlib.error):
        return ""
    return text if text.replace("\n", "").replace("\t", "").isprintable() else ""


def _attempt(decode: Callable[[str], bytes]) -> Callable[[str], str]:
    def read(token: str) -> str:
        try:
            return _decode_bytes(decode(token))
        except (ValueError, binascii.Error):
            return ""

    return read


def _read_base64(token: str) -> bytes:
    plain = token.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _read_base32(token: str) -> bytes:
    plain = token.rstrip("=")
    return base64.b32decode(plain + "=" * (-len(plain) % 8))


def _read_codes(token: str) -> bytes:
    return bytes(int(code) for code in re.findall(r"\d+", token))


def _read_bits(token: str) -> bytes:
    bits = re.sub(r"\s", "", token)
    return bytes(int(bits[start : start + 8], 2) for start in range(0, len(bits), 8))


def _unescape(text: str) -> str:
    return re.sub(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))", lambda one: chr(int(one[1] or one[2], 16)), text)


_WHOLE: Final[dict[str, Callable[[str], str]]] = {
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "percent": urllib.parse.unquote,
    "entities": html.unescape,
    "escapes": _unescape,
    "spaced": lambda text: re.sub(
        r"(?<![^\s=:(\[])(?:\S[ ._-])+\S(?!\S)", lambda one: re.sub(r"[ ._-]", "", one[0]), text
    ),
}
_TOKENS: Final[dict[str, tuple[re.Pattern[str], Callable[[str], str]]]] = {
    "base64": (re.compile(r"(?<![\w+/-])[\w+/-]{2,}={0,2}(?![\w+/=-])", re.ASCII), _attempt(_read_base64)),
    "base32": (re.compile(r"(?<!\w)[A-Z2-7]{4,}={0,6}(?![\w=])"), _attempt(_read_base32)),
    "hex": (
        re.compile(r"(?<![0-9a-fA-F])(?:0x)?(?:[0-9a-fA-F]{2}){2,}(?![0-9a-fA-F])"),
        _attempt(lambda token: bytes.fromhex(token.removeprefix("0x"))),
    ),
    "codes": (re.compile(r"(?<!\d)(?:1?\d{2}[\s,;]+)+1?\d{2}(?!\d)"), _attempt(_read_codes)),
    "bits": (re.compile(r"(?<!\d)[01]{8}(?:\s?[01]{8})*(?!\d)"), _attempt(_read_bits)),
}
