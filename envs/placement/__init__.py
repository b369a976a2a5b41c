"""This file holds what the placement package is: where workers run, and who starts, drains and replaces them."""
