"""Commands that read and reward trajectories: ``query``, ``show``, ``summary``, ``reward``, ``export``."""
