"""Search for words inside trajectories: a text index on this machine, made when it is asked for."""
