"""Wire formats of clients, translated from and to chat completions."""
