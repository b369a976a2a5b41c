"""Capture, store and dispatch agent rollouts for reinforcement learning.

The package's parts are imported by name (``agent_layer.store``, ``agent_layer.dispatcher``); importing this
module alone loads nothing else.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
