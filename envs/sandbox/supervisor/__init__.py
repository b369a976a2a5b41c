"""One supervisor per worker's host: the only process that makes sandboxes, and what talks to it.

A worker takes boxes through a ``SupervisorHandle``. Agents, scorers and commands use ``connect_sandbox`` with the
address that the worker gives them, which holds a capability.
"""
