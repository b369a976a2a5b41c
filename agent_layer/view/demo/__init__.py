"""A recorded run that ships with the package, for a look at the page before anything is trained."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.demo.recording import RECORDING as RECORDING
    from agent_layer.view.demo.recording import open_recording as open_recording
    from agent_layer.view.demo.recording import pack_recording as pack_recording
else:
    __getattr__ = lazy_exports(
        __name__, {"agent_layer.view.demo.recording": ("RECORDING", "open_recording", "pack_recording")}
    )
