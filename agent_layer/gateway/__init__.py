"""The endpoint at which agents find their model, and where every call is captured."""
