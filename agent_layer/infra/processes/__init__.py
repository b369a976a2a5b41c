"""Child processes, locks, addresses: everything that touches the operating system."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.infra.processes.addresses import (
        free_port as free_port,
    )
    from agent_layer.infra.processes.addresses import (
        is_free as is_free,
    )
    from agent_layer.infra.processes.addresses import (
        is_listening as is_listening,
    )
    from agent_layer.infra.processes.addresses import (
        is_responding as is_responding,
    )
    from agent_layer.infra.processes.addresses import (
        reachable_host as reachable_host,
    )
    from agent_layer.infra.processes.detached import (
        LOCK_DESCRIPTOR as LOCK_DESCRIPTOR,
    )
    from agent_layer.infra.processes.detached import (
        Detached as Detached,
    )
    from agent_layer.infra.processes.detached import (
        start_detached as start_detached,
    )
    from agent_layer.infra.processes.file_limit import raise_file_limit as raise_file_limit
    from agent_layer.infra.processes.locks import hold_alone as hold_alone
    from agent_layer.infra.processes.locks import hold_lock as hold_lock
    from agent_layer.infra.processes.locks import is_locked as is_locked
    from agent_layer.infra.processes.locks import share_lock as share_lock
    from agent_layer.infra.processes.locks import try_lock as try_lock
    from agent_layer.infra.processes.marked import kill_marked as kill_marked
    from agent_layer.infra.processes.marked import list_marked as list_marked
    from agent_layer.infra.processes.pulse import (
        probe_pulse as probe_pulse,
    )
    from agent_layer.infra.processes.pulse import (
        read_pulse as read_pulse,
    )
    from agent_layer.infra.processes.pulse import (
        write_pulse as write_pulse,
    )
    from agent_layer.infra.processes.reaper import (
        KILL_NOW as KILL_NOW,
    )
    from agent_layer.infra.processes.reaper import (
        REAPER_PROGRAM as REAPER_PROGRAM,
    )
    from agent_layer.infra.processes.reaper import (
        ChildExitPipe as ChildExitPipe,
    )
    from agent_layer.infra.processes.reaper import (
        become_subreaper as become_subreaper,
    )
    from agent_layer.infra.processes.reaper import (
        die_with_parent as die_with_parent,
    )
    from agent_layer.infra.processes.reaper import (
        exit_like as exit_like,
    )
    from agent_layer.infra.processes.reaper import (
        kill_descendants as kill_descendants,
    )
    from agent_layer.infra.processes.reaper import (
        list_children as list_children,
    )
    from agent_layer.infra.processes.reaper import (
        reap as reap,
    )
    from agent_layer.infra.processes.restart import RestartHistory as RestartHistory
    from agent_layer.infra.processes.restart import RestartPolicy as RestartPolicy
    from agent_layer.infra.processes.supervised import SupervisedProcess as SupervisedProcess
    from agent_layer.infra.processes.supervised import start_supervised as start_supervised
    from agent_layer.infra.processes.supervised import supervised_command as supervised_command
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.infra.processes.addresses": (
                "is_responding",
                "free_port",
                "is_free",
                "is_listening",
                "reachable_host",
            ),
            "agent_layer.infra.processes.detached": (
                "Detached",
                "LOCK_DESCRIPTOR",
                "start_detached",
            ),
            "agent_layer.infra.processes.file_limit": ("raise_file_limit",),
            "agent_layer.infra.processes.locks": (
                "hold_alone",
                "hold_lock",
                "is_locked",
                "share_lock",
                "try_lock",
            ),
            "agent_layer.infra.processes.marked": ("kill_marked", "list_marked"),
            "agent_layer.infra.processes.pulse": (
                "probe_pulse",
                "read_pulse",
                "write_pulse",
            ),
            "agent_layer.infra.processes.reaper": (
                "KILL_NOW",
                "ChildExitPipe",
                "REAPER_PROGRAM",
                "become_subreaper",
                "list_children",
                "exit_like",
                "die_with_parent",
                "reap",
                "kill_descendants",
            ),
            "agent_layer.infra.processes.restart": ("RestartHistory", "RestartPolicy"),
            "agent_layer.infra.processes.supervised": (
                "SupervisedProcess",
                "start_supervised",
                "supervised_command",
            ),
        },
    )
