"""Scrubbing: keeps keys out of the log by masking them in the bytes of every record.

Agents print their environment, errors quote headers, clients put keys into bodies. A mask is as long as the key, so
that the record around it stays readable.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from agent_layer.schema import KEY_PREFIX

_MIN_LENGTH = 8
"""Shorter operator keys are words that texts contain anyway."""
_PREFIX: Final = KEY_PREFIX.encode()
_ROLLOUT_KEY: Final = re.compile(re.escape(_PREFIX) + rb"[A-Za-z0-9_-]+")
_NO_KEY: Final = re.compile(rb"[^A-Za-z0-9_-]")
_PIECE_BYTES: Final = 1 << 16


class KeyScrubber:
    """Masks operators' keys by value and rollouts' keys by form.

    Args:
        operator_keys: of this process's settings.
    """

    def __init__(self, operator_keys: Sequence[str]) -> None:
        self._operators = [key.encode() for key in operator_keys if len(key) >= _MIN_LENGTH]

    def scrub(self, content: bytes) -> bytes:
        """Return the content with its keys masked, as long as before."""
        if _PREFIX in content:
            content = b"".join(map(_mask_rollout_keys, _pieces(content)))
        for key in self._operators:
            if key in content:
                content = content.replace(key, b"*" * len(key))
        return content

    def scrub_text(self, text: str) -> str:
        """Return a text with its keys masked, also one whose end was cut off with the text."""
        content = self.scrub(text.encode("utf-8", "backslashreplace"))
        for key in self._operators:
            num_left = next((num for num in range(len(key) - 1, _MIN_LENGTH - 1, -1) if content.endswith(key[:num])), 0)
            content = content[: len(content) - num_left] + b"*" * num_left
        return content.decode()


def _mask_rollout_keys(content: bytes) -> bytes:
    return _ROLLOUT_KEY.sub(lambda found: b"*" * len(found[0]), content)


def _pieces(content: bytes) -> Iterator[bytes]:
    """Cut a content where no key is. The masks of millions of keys at once would take forty times its memory."""
    begin = 0
    while begin < len(content):
        cut = _NO_KEY.search(content, begin + _PIECE_BYTES)
        end = cut.start() if cut else len(content)
        yield content[begin:end]
        begin = end
