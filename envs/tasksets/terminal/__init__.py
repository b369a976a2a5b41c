"""Work at a terminal: generated chores whose results are files, read as data in a box of their own."""
