"""Boxes with a server inside, which the worker reaches over a socket: what most kinds are made of."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.served.box import BoxLife as BoxLife
    from envs.sandbox.served.box import ServedSandbox as ServedSandbox
    from envs.sandbox.served.cgroups import Cgroup as Cgroup
    from envs.sandbox.served.cgroups import CgroupTree as CgroupTree
    from envs.sandbox.served.cgroups import CgroupUsage as CgroupUsage
    from envs.sandbox.served.cgroups import find_cgroup as find_cgroup
    from envs.sandbox.served.cgroups import make_cgroup_tree as make_cgroup_tree
    from envs.sandbox.served.cgroups import remove_cgroup as remove_cgroup
    from envs.sandbox.served.connection import BoxConnection as BoxConnection
    from envs.sandbox.served.connection import BoxReply as BoxReply
    from envs.sandbox.served.connection import check_ready as check_ready
    from envs.sandbox.served.host_root import HIDING_OPTIONS as HIDING_OPTIONS
    from envs.sandbox.served.host_root import list_host_binds as list_host_binds
    from envs.sandbox.served.host_root import pack_host_root as pack_host_root
    from envs.sandbox.served.kind import ServedKind as ServedKind
    from envs.sandbox.served.launch import Program as Program
    from envs.sandbox.served.launch import launch_program as launch_program
    from envs.sandbox.served.rules import BOX_USER as BOX_USER
    from envs.sandbox.served.rules import box_rules as box_rules
    from envs.sandbox.served.rules import check_image as check_image
    from envs.sandbox.served.rules import check_workdir as check_workdir
    from envs.sandbox.served.rules import writable_mb as writable_mb
    from envs.sandbox.served.zygote import FIRST_USER as FIRST_USER
    from envs.sandbox.served.zygote import NUM_USERS as NUM_USERS
    from envs.sandbox.served.zygote import describe_limits as describe_limits
    from envs.sandbox.served.zygote import describe_means as describe_means
    from envs.sandbox.served.zygote import find_box_python as find_box_python
    from envs.sandbox.served.zygote import has_own_users as has_own_users
    from envs.sandbox.served.zygote import list_hidden_folders as list_hidden_folders
    from envs.sandbox.served.zygote_kind import ZygoteKind as ZygoteKind
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
                "find_cgroup",
                "make_cgroup_tree",
                "remove_cgroup",
            ),
            "envs.sandbox.served.connection": (
                "BoxConnection",
                "BoxReply",
                "check_ready",
            ),
            "envs.sandbox.served.host_root": (
                "HIDING_OPTIONS",
                "list_host_binds",
                "pack_host_root",
            ),
            "envs.sandbox.served.kind": ("ServedKind",),
            "envs.sandbox.served.launch": (
                "Program",
                "launch_program",
            ),
            "envs.sandbox.served.zygote": (
                "describe_limits",
                "describe_means",
                "FIRST_USER",
                "NUM_USERS",
                "find_box_python",
                "has_own_users",
                "list_hidden_folders",
            ),
            "envs.sandbox.served.zygote_kind": ("ZygoteKind",),
            "envs.sandbox.served.rules": ("BOX_USER", "box_rules", "check_image", "check_workdir", "writable_mb"),
        },
    )
