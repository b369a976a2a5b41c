"""Kinds of sandboxes that come with the project."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.kinds.docker import DockerKind as DockerKind
    from envs.sandbox.kinds.namespace import NamespaceKind as NamespaceKind
    from envs.sandbox.kinds.oci import OciKind as OciKind
    from envs.sandbox.kinds.process import ProcessKind as ProcessKind
    from envs.sandbox.kinds.session import SessionKind as SessionKind
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.kinds.docker": ("DockerKind",),
            "envs.sandbox.kinds.namespace": ("NamespaceKind",),
            "envs.sandbox.kinds.oci": ("OciKind",),
            "envs.sandbox.kinds.process": ("ProcessKind",),
            "envs.sandbox.kinds.session": ("SessionKind",),
        },
    )
