"""Answers about all that a run did: how it learns, and what fails in it."""
