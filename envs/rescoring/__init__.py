"""Rescoring: a scorer judges stored trajectories again."""
