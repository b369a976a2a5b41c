"""Search for words inside trajectories: a text index on this machine, made when it is asked for."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.text.text_index import TextCoverage as TextCoverage
    from agent_layer.store.text.text_index import TextIndex as TextIndex
    from agent_layer.store.text.text_index import TextMatch as TextMatch
    from agent_layer.store.text.text_index import TextPage as TextPage
    from agent_layer.store.text.texts import Where as Where
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.text.text_index": ("TextCoverage", "TextIndex", "TextMatch", "TextPage"),
            "agent_layer.store.text.texts": ("Where",),
        },
    )
