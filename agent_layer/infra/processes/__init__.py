"""Child processes, locks, addresses: everything that touches the operating system."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.infra.processes.addresses import (
        answers as answers,
    )
    from agent_layer.infra.processes.addresses import (
        free_port as free_port,
    )
    from agent_layer.infra.processes.addresses import (
        listens as listens,
    )
    from agent_layer.infra.processes.addresses import (
        reached as reached,
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
    from agent_layer.infra.processes.locks import is_locked as is_locked
    from agent_layer.infra.processes.locks import share_lock as share_lock
    from agent_layer.infra.processes.locks import try_lock as try_lock
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
        AT_ONCE as AT_ONCE,
    )
    from agent_layer.infra.processes.reaper import (
        REAPER_PROGRAM as REAPER_PROGRAM,
    )
    from agent_layer.infra.processes.reaper import (
        ChildBell as ChildBell,
    )
    from agent_layer.infra.processes.reaper import (
        adopt_orphans as adopt_orphans,
    )
    from agent_layer.infra.processes.reaper import (
        children_of as children_of,
    )
    from agent_layer.infra.processes.reaper import (
        end_as as end_as,
    )
    from agent_layer.infra.processes.reaper import (
        end_with_parent as end_with_parent,
    )
    from agent_layer.infra.processes.reaper import (
        keep as keep,
    )
    from agent_layer.infra.processes.reaper import (
        kill_below as kill_below,
    )
    from agent_layer.infra.processes.restart import Deaths as Deaths
    from agent_layer.infra.processes.supervised import Leashed as Leashed
    from agent_layer.infra.processes.supervised import start_leashed as start_leashed
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.infra.processes.addresses": (
                "answers",
                "free_port",
                "listens",
                "reached",
            ),
            "agent_layer.infra.processes.detached": (
                "Detached",
                "LOCK_DESCRIPTOR",
                "start_detached",
            ),
            "agent_layer.infra.processes.locks": (
                "is_locked",
                "share_lock",
                "try_lock",
            ),
            "agent_layer.infra.processes.pulse": (
                "probe_pulse",
                "read_pulse",
                "write_pulse",
            ),
            "agent_layer.infra.processes.reaper": (
                "AT_ONCE",
                "ChildBell",
                "REAPER_PROGRAM",
                "adopt_orphans",
                "children_of",
                "end_as",
                "end_with_parent",
                "keep",
                "kill_below",
            ),
            "agent_layer.infra.processes.restart": ("Deaths",),
            "agent_layer.infra.processes.supervised": (
                "Leashed",
                "start_leashed",
            ),
        },
    )
