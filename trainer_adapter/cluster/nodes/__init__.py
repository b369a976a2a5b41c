"""Machines of a Ray cluster that a user started: what a run needs, whether they have it, and which have died."""
