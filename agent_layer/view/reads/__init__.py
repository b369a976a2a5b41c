"""What each route reads from the store, and how it becomes an answer."""
