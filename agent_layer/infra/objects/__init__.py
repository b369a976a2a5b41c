"""Object stores behind one protocol: a directory, S3, memory."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.infra.objects.base import ObjectEntry as ObjectEntry
    from agent_layer.infra.objects.base import ObjectStore as ObjectStore
    from agent_layer.infra.objects.filesystem import open_objects as open_objects
    from agent_layer.infra.objects.memory import MemoryObjects as MemoryObjects
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.infra.objects.base": (
                "ObjectEntry",
                "ObjectStore",
            ),
            "agent_layer.infra.objects.filesystem": ("open_objects",),
            "agent_layer.infra.objects.memory": ("MemoryObjects",),
        },
    )
