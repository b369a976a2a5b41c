"""The algorithms by name, and defaults where a configuration names none."""

from typing import Final

from trainer_adapter.algorithms.papers.algorithm import Algorithm, Loss
from trainer_adapter.algorithms.papers.cispo import CISPO
from trainer_adapter.algorithms.papers.dapo import DAPO
from trainer_adapter.algorithms.papers.dr_grpo import DR_GRPO
from trainer_adapter.algorithms.papers.gmpo import GMPO
from trainer_adapter.algorithms.papers.grpo import GRPO
from trainer_adapter.algorithms.papers.gspo import GSPO
from trainer_adapter.algorithms.papers.reinforce_plus_plus import REINFORCE_PLUS_PLUS
from trainer_adapter.algorithms.papers.rloo import RLOO
from trainer_adapter.algorithms.papers.sapo import SAPO

ALGORITHMS: Final = {one.name: one for one in (GRPO, DR_GRPO, DAPO, RLOO, REINFORCE_PLUS_PLUS, GSPO, SAPO, CISPO, GMPO)}

DEFAULT: Final = Algorithm(
    name="default",
    paper="Shao et al. 2024 with the corrections of Liu et al. 2025 (no division) and Yu et al. 2025 (bounds, mean)",
    scale_by_std=False,
    loss_mean="token-mean",
    clip_low=0.2,
    clip_high=0.28,
)
"""GRPO without division by the deviation, with DAPO's bounds and its mean over tokens."""

CLIP_BOUNDS: Final[dict[Loss, tuple[float, float]]] = {
    "vanilla": (0.2, 0.28),
    "gspo": (3e-4, 4e-4),
    "cispo": (10.0, 0.2),
    "geo_mean": (0.4, 0.4),
}
"""(low, high) of each loss that has bounds, where the algorithm's own loss was replaced by it."""
