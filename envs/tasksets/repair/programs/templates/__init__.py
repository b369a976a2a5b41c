"""Small modules, each written twice, and how to draw calls of them."""
