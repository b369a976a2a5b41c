"""Recall: what learned from trajectories that turned out to be wrong, and a run that never learned from them."""
