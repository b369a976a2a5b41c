"""The store that these tests look at."""

from ...viewing import empty, fresh, viewed, viewed_store

__all__ = ["empty", "fresh", "viewed", "viewed_store"]  # found here by pytest
