"""What an operator may change from the page: orders, and the journal of who changed what."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.view.writes.exports import EXPORTS as EXPORTS
    from agent_layer.view.writes.exports import ExportOrder as ExportOrder
    from agent_layer.view.writes.journal import Journal as Journal
    from agent_layer.view.writes.journal import WriteLine as WriteLine
    from agent_layer.view.writes.journal import WriteList as WriteList
    from agent_layer.view.writes.orders import Desk as Desk
    from agent_layer.view.writes.orders import Order as Order
    from agent_layer.view.writes.routes import JOURNAL_ROUTES as JOURNAL_ROUTES
    from agent_layer.view.writes.routes import WRITES as WRITES
    from agent_layer.view.writes.routes import Writer as Writer
    from agent_layer.view.writes.routes import Writes as Writes
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.view.writes.exports": ("EXPORTS", "ExportOrder"),
            "agent_layer.view.writes.journal": ("Journal", "WriteLine", "WriteList"),
            "agent_layer.view.writes.orders": ("Desk", "Order"),
            "agent_layer.view.writes.routes": ("JOURNAL_ROUTES", "WRITES", "Writer", "Writes"),
        },
    )
