"""Everything on one machine: engines, and the processes around them."""
