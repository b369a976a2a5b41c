"""A static copy of the page over chosen trajectories: it opens from a file, without a server."""
