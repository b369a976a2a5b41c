# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .dataset import Dataset as Dataset, DatasetPlan as DatasetPlan, Table as Table
from .dataset_writer import DatasetWriter as DatasetWriter
from .feed import Feed as Feed, StoreFeedPosition as StoreFeedPosition
from .files import write_export as write_export
from .otlp import OtlpSender as OtlpSender
from .spans import ExportedTrace as ExportedTrace, make_trace as make_trace
from .verl import first_of_each_task as first_of_each_task, verl_row as verl_row, write_verl as write_verl
