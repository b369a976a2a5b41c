"""Attempts that go on elsewhere: agents that say where they are, and workers that keep it for the next holder."""

__all__: list[str] = []
