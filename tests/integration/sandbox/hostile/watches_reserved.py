"""Watchers of files: the user who started the boxes has 128, for all of them and for itself."""

number = 0
while number < 200 and LIBC.inotify_init() >= 0:
    number += 1
if number:
    escaped(f"{number} watchers of the worker's user are reserved")
