"""HTTP client towards the engines."""
