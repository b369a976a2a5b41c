"""Evaluation of an endpoint that another party serves."""
