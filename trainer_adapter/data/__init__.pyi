# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .advantages import JudgedValues as JudgedValues, TrainingBatch as TrainingBatch, advantage_rule as advantage_rule
from .advantages import assign_credit as assign_credit, group_advantages as group_advantages
from .advantages import select_batch as select_batch, value_advantages as value_advantages
from .credit import CreditRule as CreditRule, CreditedValue as CreditedValue, JudgedRollout as JudgedRollout
from .credit import RolloutSamples as RolloutSamples
from .exclusions import find_exclusions as find_exclusions
from .groups import GroupIntake as GroupIntake, count_step as count_step, read_group as read_group
from .groups import success_by_task as success_by_task
from .lengths import ModelBounds as ModelBounds, NO_BOUNDS as NO_BOUNDS, read_bounds as read_bounds
from .max_staleness import plan_start_versions as plan_start_versions
from .own_parts import check_advantage as check_advantage, check_credit as check_credit
from .own_parts import check_own_parts as check_own_parts
from .replay import Replay as Replay, rebuild_batch as rebuild_batch, record_batch as record_batch
from .samples import SampleSet as SampleSet, read_samples as read_samples, samples_of as samples_of
from .update_record import TokenColumns as TokenColumns, gap_by_engine as gap_by_engine, list_calls as list_calls
from .update_record import record_tokens as record_tokens
