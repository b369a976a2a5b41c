"""Programs whose behaviour is known, and changes of them."""
