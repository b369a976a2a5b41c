"""How to read a bucket of segments without Redis and without this project."""
