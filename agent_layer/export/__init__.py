"""Export: OTLP spans, Parquet and JSON lines datasets, veRL rows."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "dataset": "Dataset DatasetPlan Table",
        "dataset_writer": "DatasetWriter",
        "feed": "Feed StoreFeedPosition",
        "files": "write_export",
        "otlp": "OtlpSender",
        "spans": "ExportedTrace make_trace",
        "verl": "first_of_each_task verl_row write_verl",
    },
)
