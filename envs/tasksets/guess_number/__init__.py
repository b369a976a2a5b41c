"""The demo's game: find a hidden number by higher and lower."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from envs.tasksets.guess_number.game import (
        HIGHEST as HIGHEST,
    )
    from envs.tasksets.guess_number.game import (
        MAX_GUESSES as MAX_GUESSES,
    )
    from envs.tasksets.guess_number.game import (
        REWARDS as REWARDS,
    )
    from envs.tasksets.guess_number.game import (
        Game as Game,
    )
    from envs.tasksets.guess_number.game import (
        chance_without_hints as chance_without_hints,
    )
    from envs.tasksets.guess_number.game import (
        chance_without_repeats as chance_without_repeats,
    )
    from envs.tasksets.guess_number.game import (
        compare as compare,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "envs.tasksets.guess_number.game": (
                "HIGHEST",
                "MAX_GUESSES",
                "REWARDS",
                "Game",
                "chance_without_hints",
                "chance_without_repeats",
                "compare",
            ),
        },
    )
