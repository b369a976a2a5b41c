"""Filters of system calls as boxes load them, one per machine, and the assembler that writes them."""
