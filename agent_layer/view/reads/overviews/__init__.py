"""Answers about all that a run did: how it learns, and what fails in it."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.reads.overviews.failures import error_kind as error_kind
    from agent_layer.view.reads.overviews.failures import show_failures as show_failures
    from agent_layer.view.reads.overviews.learning import find_regressions as find_regressions
    from agent_layer.view.reads.overviews.learning import show_learning as show_learning
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.reads.overviews.failures": ("error_kind", "show_failures"),
            "agent_layer.view.reads.overviews.learning": ("find_regressions", "show_learning"),
        },
    )
