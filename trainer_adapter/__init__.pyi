# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .config import AlgorithmConfig as AlgorithmConfig, EvaluationConfig as EvaluationConfig
from .config import HeldOutConfig as HeldOutConfig, LoraConfig as LoraConfig, OptimizerConfig as OptimizerConfig
from .config import RetentionConfig as RetentionConfig, RolloutConfig as RolloutConfig, Schedule as Schedule
from .config import SourceConfig as SourceConfig, TrainConfig as TrainConfig, load_config as load_config
from .data import CreditedValue as CreditedValue, JudgedRollout as JudgedRollout, JudgedValues as JudgedValues
from .data import group_advantages as group_advantages, samples_of as samples_of
from .losses import LossTokens as LossTokens
from .start import train as train
from agent_layer.schema import TrainingSample as TrainingSample
