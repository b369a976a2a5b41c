"""What every kind of sandbox offers. The contract of its boxes is in ``agent_layer.schema.sandbox``."""

from typing import Protocol

import msgspec

from agent_layer.schema.sandbox import Isolation, Sandbox, SandboxSpec
from envs.sandbox.spec import ImageForm


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a kind works on this machine."""

    works: bool
    reason: str
    """What it uses here and what it has to do without; or why it does not work, and what to do."""


class SandboxKind(Protocol):
    """One way to make sandboxes. An installed package adds its own under ``agent_layer.sandboxes``.

    A kind is made without arguments, and at most one event loop uses it.
    """

    name: str
    isolation: Isolation
    cost: int
    """Rank among kinds of equal isolation; the cheapest is chosen."""
    images: frozenset[ImageForm]
    """Forms of images that its boxes can have."""
    stops: str
    """What it stops and what it does not, in plain words."""

    async def probe(self) -> Support:
        """Try it, within seconds; a second call returns what the first one found."""
        ...

    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box.

        Raises:
            BadInputError: this kind cannot make a box of this spec.
            SandboxError: the machine failed to; another try may succeed.
        """
        ...

    async def close(self) -> None:
        """End everything that it holds, open boxes included."""
        ...
