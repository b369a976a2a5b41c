"""The demo's game: find a hidden number by higher and lower."""
