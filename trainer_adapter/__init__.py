"""Training: whole groups of rollouts in, policy versions out. ``train`` runs all of it on this machine."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_adapter.entry import train

__all__ = ["train"]


def __getattr__(name: str) -> object:
    """Import on first use: nobody who wants only one module of this package pays for the others."""
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer_adapter.entry import train  # noqa: PLC0415

    return train
