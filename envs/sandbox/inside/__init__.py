"""Programs that run inside and beneath boxes, under the machine's own Python.

They import the standard library only, run from Python 3.10 on, and see neither this project nor the worker's
environment: they travel as one archive in memory (``envs.sandbox.pack_programs``).

* ``keeper`` starts the zygote, gives it users of its own, and removes what is left when the worker dies.
* ``zygote`` has imported what snippets need, and forks the server of each box.
* ``server`` is the first process of a box: it runs commands and touches files when the worker asks.
"""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.sandbox.inside.packets import Packet as Packet
    from envs.sandbox.inside.packets import receive_packet as receive_packet
    from envs.sandbox.inside.packets import send_packet as send_packet
    from envs.sandbox.inside.skeleton import HOST_FILES as HOST_FILES
    from envs.sandbox.inside.skeleton import HOST_LINKS as HOST_LINKS
    from envs.sandbox.inside.skeleton import ROOT_FILES as ROOT_FILES
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.sandbox.inside.packets": (
                "Packet",
                "receive_packet",
                "send_packet",
            ),
            "envs.sandbox.inside.skeleton": (
                "HOST_FILES",
                "HOST_LINKS",
                "ROOT_FILES",
            ),
        },
    )
