"""What kinds whose boxes have a server inside share: the probe, and the list of open boxes."""

import asyncio
from abc import ABC, abstractmethod

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import Isolation, Sandbox, SandboxSpec
from envs.sandbox.host_side.box import BoxHandle, ServedSandbox
from envs.sandbox.host_side.connection import BoxConnection
from envs.sandbox.kind import Support
from envs.sandbox.spec import ImageForm


class ServedKind(ABC):
    """Base of kinds. Contract: ``SandboxKind``."""

    name: str
    isolation: Isolation
    cost: int
    images: frozenset[ImageForm]
    stops: str

    def __init__(self) -> None:
        self._probing = asyncio.Lock()
        self._support: Support | None = None
        self.open_boxes: set[ServedSandbox] = set()

    async def probe(self) -> Support:
        """Start a box and end it."""
        async with self._probing:
            if self._support is None:
                try:
                    box = await self.start(self.sample_spec(), owner="probe")
                except SandboxError as error:
                    self._support = Support(works=False, reason=str(error).removeprefix("sandbox: "))
                else:
                    await box.close()
                    self._support = Support(works=True, reason=self.describe())
        return self._support

    def sample_spec(self) -> SandboxSpec:
        """Return the spec of the box that the probe starts."""
        return SandboxSpec()

    @abstractmethod
    async def start(self, spec: SandboxSpec, *, owner: str) -> Sandbox:
        """Make a box."""

    @abstractmethod
    def describe(self) -> str:
        """Return what boxes use on this machine, after one has been made."""

    def add_box(
        self, box_id: str, spec: SandboxSpec, *, owner: str, connection: BoxConnection, life: BoxHandle
    ) -> ServedSandbox:
        """Return a box that is up, as one of this kind's."""
        box = ServedSandbox(box_id, self.name, spec, owner=owner, connection=connection, life=life)
        box.start_sibling = lambda spec, owner: self.start(spec, owner=owner)
        box.on_end = lambda: self.open_boxes.discard(box)
        self.open_boxes.add(box)
        return box

    async def close(self) -> None:
        """End all boxes."""
        await asyncio.gather(*(box.close() for box in list(self.open_boxes)))
