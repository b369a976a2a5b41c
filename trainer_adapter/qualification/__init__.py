"""Qualification of harnesses: a fixed script, what the engine sampled, and what of it is trained."""
