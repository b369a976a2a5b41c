"""Adapters: task sets and environments of other packages, one file and one extra each, named ``PACKAGE:NAME``.

``envs.tasksets`` and ``envs.registry`` find them by their path.
"""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"gymnasium": "open_environment"})
