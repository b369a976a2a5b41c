# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .adapters import check_same as check_same, check_targets as check_targets, find_adapter as find_adapter
from .adapters import merged_weights as merged_weights
from .export import check_new as check_new, check_num_processes as check_num_processes
from .export import export_checkpoint as export_checkpoint
from .losses import LossPlan as LossPlan, make_loss as make_loss, weigh_tokens as weigh_tokens
from .options import check_verl_options as check_verl_options
from .platform import CpuPlatform as CpuPlatform, enter_platform as enter_platform, load_engines as load_engines
from .ranks import LeadingSupervisedTrainer as LeadingSupervisedTrainer, LeadingTrainer as LeadingTrainer
from .ranks import follow_leader as follow_leader
from .supervised import SupervisedTrainer as SupervisedTrainer
from .trackers import check_trackers as check_trackers, open_trackers as open_trackers
from .trainer import EmbeddedTrainer as EmbeddedTrainer, PolicyTrainer as PolicyTrainer, PolicyUpdate as PolicyUpdate
from .trainer import UpdateReport as UpdateReport
from .weights import PublishedWeights as PublishedWeights, WeightPublisher as WeightPublisher
