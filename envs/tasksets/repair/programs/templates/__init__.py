"""Small modules, each written twice, and how to draw calls of them."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.tasksets.repair.programs.templates.caching import CACHING as CACHING
    from envs.tasksets.repair.programs.templates.calendars import CALENDARS as CALENDARS
    from envs.tasksets.repair.programs.templates.formulas import FORMULAS as FORMULAS
    from envs.tasksets.repair.programs.templates.intervals import INTERVALS as INTERVALS
    from envs.tasksets.repair.programs.templates.inventory import INVENTORY as INVENTORY
    from envs.tasksets.repair.programs.templates.ledger import LEDGER as LEDGER
    from envs.tasksets.repair.programs.templates.matrices import MATRICES as MATRICES
    from envs.tasksets.repair.programs.templates.numerals import NUMERALS as NUMERALS
    from envs.tasksets.repair.programs.templates.queueing import QUEUEING as QUEUEING
    from envs.tasksets.repair.programs.templates.records import RECORDS as RECORDS
    from envs.tasksets.repair.programs.templates.routes import ROUTES as ROUTES
    from envs.tasksets.repair.programs.templates.wrapping import WRAPPING as WRAPPING
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.tasksets.repair.programs.templates.caching": ("CACHING",),
            "envs.tasksets.repair.programs.templates.calendars": ("CALENDARS",),
            "envs.tasksets.repair.programs.templates.formulas": ("FORMULAS",),
            "envs.tasksets.repair.programs.templates.intervals": ("INTERVALS",),
            "envs.tasksets.repair.programs.templates.inventory": ("INVENTORY",),
            "envs.tasksets.repair.programs.templates.ledger": ("LEDGER",),
            "envs.tasksets.repair.programs.templates.matrices": ("MATRICES",),
            "envs.tasksets.repair.programs.templates.numerals": ("NUMERALS",),
            "envs.tasksets.repair.programs.templates.queueing": ("QUEUEING",),
            "envs.tasksets.repair.programs.templates.records": ("RECORDS",),
            "envs.tasksets.repair.programs.templates.routes": ("ROUTES",),
            "envs.tasksets.repair.programs.templates.wrapping": ("WRAPPING",),
        },
    )
