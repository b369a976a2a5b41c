"""Stored trajectories as training data: what may be used, rows to imitate, to prefer and to train, and their card."""
