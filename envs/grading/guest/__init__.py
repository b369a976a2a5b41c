"""Programs that scorers run in boxes, beside the code that they judge. They hold no expectation: see ``values.py``."""
