"""Scrubbing: keeps keys out of the log by masking them in the bytes of every record.

Agents print their environment, errors quote headers, clients put keys into bodies. A mask is as long as the key, so
that the record around it stays readable.
"""

import re
from collections.abc import Sequence
from typing import Final

from agent_layer.schema.wire import KEY_PREFIX

_SHORTEST = 8
"""Shorter operator keys are words that texts contain anyway."""
_PREFIX: Final = KEY_PREFIX.encode()
_ROLLOUT_KEY: Final = re.compile(re.escape(_PREFIX) + rb"[A-Za-z0-9_-]+")


class KeyScrubber:
    """Masks operators' keys by value and rollouts' keys by form.

    Args:
        operator_keys: of this process's settings.
    """

    def __init__(self, operator_keys: Sequence[str]) -> None:
        self._operators = [key.encode() for key in operator_keys if len(key) >= _SHORTEST]

    def scrub(self, content: bytes) -> bytes:
        """Return the content with its keys masked, as long as before."""
        if _PREFIX in content:
            content = _ROLLOUT_KEY.sub(lambda found: b"*" * len(found[0]), content)
        for key in self._operators:
            if key in content:
                content = content.replace(key, b"*" * len(key))
        return content

    def scrub_text(self, text: str) -> str:
        """Return a text with its keys masked, also one whose end was cut off with the text."""
        content = self.scrub(text.encode("utf-8", "backslashreplace"))
        for key in self._operators:
            num_left = next((num for num in range(len(key) - 1, _SHORTEST - 1, -1) if content.endswith(key[:num])), 0)
            content = content[: len(content) - num_left] + b"*" * num_left
        return content.decode()
