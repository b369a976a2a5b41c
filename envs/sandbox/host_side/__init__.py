"""Boxes with a server inside, which the worker reaches over a socket: what most kinds are made of."""
