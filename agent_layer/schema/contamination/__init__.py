"""Fingerprints of tasks, and the comparison of a task with those that are held out."""
