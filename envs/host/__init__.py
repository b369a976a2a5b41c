"""Processes in which users' code runs, apart from the worker that holds their leases.

The worker runs no code of users: agents run in a host (all beside each other, or each in a process of its own), scorers
in another. Whatever such a process does, the worker goes on to keep leases, and nothing of it outlives its end.
"""

__all__: list[str] = []
