"""Rows of a micro-batch behind each other, without padding, and logits of a few of their tokens at a time."""
