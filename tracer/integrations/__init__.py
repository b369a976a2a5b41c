"""Frameworks and clients that are traced without a change to them."""
