"""Lua scripts that run inside Redis. Each is declared beside its callers, with the rights that it needs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from redis import Redis
from redis.commands.core import Script
from redis.exceptions import NoScriptError
from redis.typing import EncodableT, KeyT

_NUM_RESTARTS = 3


@dataclass(frozen=True, kw_only=True)
class LuaScript:
    """One script: its files, the commands that it calls and the keys that it reaches.

    A script runs with the rights of its caller, so access rules follow from these declarations. They count what the
    script's own code reaches, in preludes too; unused functions of a prelude add nothing. A test compares them with
    the text.
    """

    file: Path
    preludes: tuple[Path, ...] = ()
    """Files whose text comes first, in this order: each uses what those before it define."""
    constants: str = ""
    """Lua code before all files, for tables that Python and Lua share."""
    commands: str
    """Redis commands, lower case, separated by spaces."""
    reads: str = ""
    """Families of keys that it only reads; see ``Keys``. A word is one key, ``word:*`` all keys below it."""
    writes: str = ""
    """Families of keys that it reads and writes."""
    keys: tuple[str, ...] = ("",)
    """Families that its KEYS name; the empty one is the prefix of the namespace. Redis 7 requires them writable."""

    @property
    def name(self) -> str:
        """Name of its file, without the suffix."""
        return self.file.stem

    @cached_property
    def text(self) -> str:
        """The whole script, as Redis receives it."""
        return self.constants + "".join(file.read_text() for file in (*self.preludes, self.file))

    def load(self, redis: Redis) -> Script:
        """Return the script as a function of its keys and arguments; Redis receives its text on the first call."""
        return _Script(redis, self.text)


class _Script(Script):
    """A script whose server may restart between its text and its call."""

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]  # no client here is a cluster's
        self, keys: Sequence[KeyT] | None = None, args: Iterable[EncodableT] | None = None, client: Redis | None = None
    ) -> object:
        arguments = list(args or ())
        for _ in range(_NUM_RESTARTS):
            with suppress(NoScriptError):
                return super().__call__(keys, arguments, client)
        return super().__call__(keys, arguments, client)


def list_commands(scripts: Iterable[LuaScript]) -> set[str]:
    """Return every command that a caller of these scripts needs, those to send and run scripts included."""
    commands = {name for script in scripts for name in script.commands.split()}
    return commands | {"evalsha", "script|load"} if commands else commands
