"""Programs that show the agent layer at work; each folder has a README or a docstring that says how to run it."""
