"""The gate of task sets: no set trains before right solutions score 1 and all others 0."""
