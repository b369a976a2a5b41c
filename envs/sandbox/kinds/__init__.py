"""Kinds of sandboxes that come with the project."""
