"""The driver on Ray: stock veRL trains, its own vLLM servers sample, our loop decides what is trained when."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from trainer_adapter.cluster.launch import check_on_ray as check_on_ray
    from trainer_adapter.cluster.launch import plan_on_ray as plan_on_ray
    from trainer_adapter.cluster.launch import train_on_ray as train_on_ray
    from trainer_adapter.cluster.overrides import MARK as MARK
    from trainer_adapter.cluster.overrides import choose_mode as choose_mode
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "trainer_adapter.cluster.launch": (
                "check_on_ray",
                "plan_on_ray",
                "train_on_ray",
            ),
            "trainer_adapter.cluster.overrides": (
                "MARK",
                "choose_mode",
            ),
        },
    )
