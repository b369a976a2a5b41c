"""Answers about tokens of trajectories: which each step adds, where they fork, and where those of two differ."""
