"""Trajectories read back from segments, shown, and judged later."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.store.reading.display import (
        show_row as show_row,
    )
    from agent_layer.store.reading.display import (
        show_step as show_step,
    )
    from agent_layer.store.reading.display import (
        show_trajectory as show_trajectory,
    )
    from agent_layer.store.reading.display import (
        step_reward as step_reward,
    )
    from agent_layer.store.reading.display import (
        step_rewards as step_rewards,
    )
    from agent_layer.store.reading.labels import (
        LabelOptions as LabelOptions,
    )
    from agent_layer.store.reading.labels import (
        make_label as make_label,
    )
    from agent_layer.store.reading.labels import (
        read_known_labels as read_known_labels,
    )
    from agent_layer.store.reading.reader import (
        pick_step as pick_step,
    )
    from agent_layer.store.reading.reader import (
        pick_steps as pick_steps,
    )
    from agent_layer.store.reading.reader import (
        read_trajectories as read_trajectories,
    )
    from agent_layer.store.reading.reader import (
        stream_steps as stream_steps,
    )
    from agent_layer.store.reading.reader import (
        stream_trajectories as stream_trajectories,
    )
    from agent_layer.store.reading.reader import (
        trajectory_not_found as trajectory_not_found,
    )
    from agent_layer.store.reading.rewards import (
        RewardOptions as RewardOptions,
    )
    from agent_layer.store.reading.rewards import (
        commit_reward as commit_reward,
    )
    from agent_layer.store.reading.rewards import (
        find_current_reward as find_current_reward,
    )
    from agent_layer.store.reading.rewards import (
        make_reward as make_reward,
    )
    from agent_layer.store.reading.rewards import (
        read_rewards as read_rewards,
    )
    from agent_layer.store.reading.tokens import (
        StepTokens as StepTokens,
    )
    from agent_layer.store.reading.tokens import (
        read_step_tokens as read_step_tokens,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.store.reading.display": (
                "show_row",
                "show_step",
                "show_trajectory",
                "step_reward",
                "step_rewards",
            ),
            "agent_layer.store.reading.labels": (
                "LabelOptions",
                "make_label",
                "read_known_labels",
            ),
            "agent_layer.store.reading.reader": (
                "trajectory_not_found",
                "pick_step",
                "pick_steps",
                "read_trajectories",
                "stream_steps",
                "stream_trajectories",
            ),
            "agent_layer.store.reading.rewards": (
                "RewardOptions",
                "commit_reward",
                "find_current_reward",
                "make_reward",
                "read_rewards",
            ),
            "agent_layer.store.reading.tokens": (
                "StepTokens",
                "read_step_tokens",
            ),
        },
    )
