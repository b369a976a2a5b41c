"""Export: OTLP spans, Parquet and JSON lines datasets, veRL rows."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.export.dataset import Dataset as Dataset
    from agent_layer.export.dataset import Plan as Plan
    from agent_layer.export.dataset import Table as Table
    from agent_layer.export.dataset_writer import Keeper as Keeper
    from agent_layer.export.feed import Feed as Feed
    from agent_layer.export.feed import StorePlace as StorePlace
    from agent_layer.export.files import replacing as replacing
    from agent_layer.export.otlp import OtlpSender as OtlpSender
    from agent_layer.export.spans import Trace as Trace
    from agent_layer.export.spans import trace_of as trace_of
    from agent_layer.export.verl import (
        first_of_each_task as first_of_each_task,
    )
    from agent_layer.export.verl import (
        verl_row as verl_row,
    )
    from agent_layer.export.verl import (
        write_verl as write_verl,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.export.dataset": (
                "Dataset",
                "Plan",
                "Table",
            ),
            "agent_layer.export.dataset_writer": ("Keeper",),
            "agent_layer.export.feed": (
                "Feed",
                "StorePlace",
            ),
            "agent_layer.export.files": ("replacing",),
            "agent_layer.export.otlp": ("OtlpSender",),
            "agent_layer.export.spans": (
                "Trace",
                "trace_of",
            ),
            "agent_layer.export.verl": (
                "first_of_each_task",
                "verl_row",
                "write_verl",
            ),
        },
    )
