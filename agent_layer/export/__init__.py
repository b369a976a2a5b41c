"""Export: OTLP spans, Parquet and JSON lines datasets, veRL rows."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.export.dataset import Dataset as Dataset
    from agent_layer.export.dataset import DatasetPlan as DatasetPlan
    from agent_layer.export.dataset import Table as Table
    from agent_layer.export.dataset_writer import DatasetWriter as DatasetWriter
    from agent_layer.export.feed import Feed as Feed
    from agent_layer.export.feed import StoreFeedPosition as StoreFeedPosition
    from agent_layer.export.files import write_export as write_export
    from agent_layer.export.otlp import OtlpSender as OtlpSender
    from agent_layer.export.spans import ExportedTrace as ExportedTrace
    from agent_layer.export.spans import make_trace as make_trace
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
                "DatasetPlan",
                "Table",
            ),
            "agent_layer.export.dataset_writer": ("DatasetWriter",),
            "agent_layer.export.feed": (
                "Feed",
                "StoreFeedPosition",
            ),
            "agent_layer.export.files": ("write_export",),
            "agent_layer.export.otlp": ("OtlpSender",),
            "agent_layer.export.spans": (
                "ExportedTrace",
                "make_trace",
            ),
            "agent_layer.export.verl": (
                "first_of_each_task",
                "verl_row",
                "write_verl",
            ),
        },
    )
