"""The parts by kind. A new part is one line here."""

from typing import TypeAlias

from trainer_adapter.selection.group_ramp import GroupRamp
from trainer_adapter.selection.input_size import InputSize
from trainer_adapter.selection.labelled import Labelled
from trainer_adapter.selection.success_between import SuccessBetween
from trainer_adapter.selection.success_ramp import SuccessRamp
from trainer_adapter.selection.success_share import SuccessShare
from trainer_adapter.selection.variance_share import VarianceShare

Curriculum: TypeAlias = SuccessShare | VarianceShare
"""``share(num_rollouts, rates)`` returns how many rollouts each task of a submission gets.

Args: rates: [num_tasks], recent success rate of each task, 0 to 1.
Returns: [num_tasks].
"""

TaskFilter: TypeAlias = SuccessBetween | InputSize | Labelled
"""``admits(task, success)`` returns whether a task is submitted when its turn comes.

``success`` is its recent success rate, None where it has none. A task that is not admitted is tried in a share
``retry`` of its turns all the same, because the policy changes.
"""

LevelRamp: TypeAlias = SuccessRamp | GroupRamp
"""``rises(successes)`` returns whether a task set moves on to its next level.

Args: successes: success of the groups that were trained at this level, oldest first, at most ``MOST_SUCCESSES``.
"""

MOST_SUCCESSES = 10_000
