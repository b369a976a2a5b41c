"""What an operator may change from the page: orders, and the journal of who changed what."""
