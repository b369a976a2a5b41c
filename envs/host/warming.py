"""This file holds what a zygote does before it forks, so that each forked process has less to do."""

import gc
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

__all__ = ["warm_up"]

_IMPORTED_LATE: Final = {
    "anthropic": "anthropic.resources",
    "anyio": "anyio._backends._asyncio",
    "openai": "openai.resources",
}
"""What clients import at their first call, by a module that shows that they are in use. It takes OpenAI's 0.3 s."""


def warm_up() -> None:
    """Import what the agent's clients would import in every forked process, and leave memory so that it is shared."""
    for client, late in _IMPORTED_LATE.items():
        if client in sys.modules:
            with suppress(ImportError):  # another version of it
                import_module(late)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy every page that it looks at
