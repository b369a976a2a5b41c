# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .config import AlgorithmConfig as AlgorithmConfig, EvaluationConfig as EvaluationConfig
from .config import HeldOutConfig as HeldOutConfig, LoraConfig as LoraConfig, OptimizerConfig as OptimizerConfig
from .config import RetentionConfig as RetentionConfig, RolloutConfig as RolloutConfig, SourceConfig as SourceConfig
from .config import TrainConfig as TrainConfig, load_config as load_config
from .data import group_advantages as group_advantages, samples_of as samples_of
from .entry import train as train
from .schedule import Schedule as Schedule
from agent_layer.schema import TrainingSample as TrainingSample
