"""The main job, small enough for a laptop: an agent learns to find a hidden number from "higher" and "lower"."""
