"""Semantic conventions by which spans describe model calls."""
