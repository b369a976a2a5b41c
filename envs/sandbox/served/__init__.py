"""Boxes with a server inside, which the worker reaches over a socket: what most kinds are made of."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.served.box import BoxLife as BoxLife
    from envs.sandbox.served.box import ServedSandbox as ServedSandbox
    from envs.sandbox.served.cgroups import Cgroup as Cgroup
    from envs.sandbox.served.cgroups import CgroupTree as CgroupTree
    from envs.sandbox.served.cgroups import CgroupUsage as CgroupUsage
    from envs.sandbox.served.cgroups import make_cgroup_tree as make_cgroup_tree
    from envs.sandbox.served.cgroups import remove_cgroup as remove_cgroup
    from envs.sandbox.served.connection import BoxConnection as BoxConnection
    from envs.sandbox.served.connection import check_ready as check_ready
    from envs.sandbox.served.launch import Program as Program
    from envs.sandbox.served.launch import launch_program as launch_program
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.served.box": (
                "BoxLife",
                "ServedSandbox",
            ),
            "envs.sandbox.served.cgroups": (
                "Cgroup",
                "CgroupTree",
                "CgroupUsage",
                "make_cgroup_tree",
                "remove_cgroup",
            ),
            "envs.sandbox.served.connection": (
                "BoxConnection",
                "check_ready",
            ),
            "envs.sandbox.served.launch": (
                "Program",
                "launch_program",
            ),
        },
    )
