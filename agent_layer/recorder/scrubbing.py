"""This file holds how keys stay out of the log: each is blotted out of the bytes of a record, wherever it stands.

Agents print their environment, errors quote headers, clients put keys into bodies. A blot is as long as what it
covers, so that the record around it stays readable.
"""

import re
from collections.abc import Sequence
from typing import Final

from agent_layer.schema.wire import KEY_PREFIX

_SHORTEST = 8
"""Operator keys below are words that texts contain anyway."""
_PREFIX: Final = KEY_PREFIX.encode()
_ROLLOUT_KEY: Final = re.compile(re.escape(_PREFIX) + rb"[A-Za-z0-9_-]+")


class KeyScrubber:
    """Knows operators' keys by their letters and rollouts' keys by their form.

    Args:
        operator_keys: of this process's settings.
    """

    def __init__(self, operator_keys: Sequence[str]) -> None:
        self._operators = [key.encode() for key in operator_keys if len(key) >= _SHORTEST]

    def scrub(self, content: bytes) -> bytes:
        """Give the content, as long as before, without keys."""
        if _PREFIX in content:
            content = _ROLLOUT_KEY.sub(lambda found: b"*" * len(found[0]), content)
        for key in self._operators:
            if key in content:
                content = content.replace(key, b"*" * len(key))
        return content
