"""The languages in which clients ask: one file each."""
