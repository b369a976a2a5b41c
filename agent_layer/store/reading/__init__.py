"""Trajectories read back from segments, shown, and judged later."""
