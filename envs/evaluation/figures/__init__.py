"""Figures of rounds: estimators, what a round found out, comparisons. Pure."""
