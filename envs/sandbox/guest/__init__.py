"""Programs that run inside and beneath boxes, under the machine's own Python.

They import the standard library only, run from Python 3.10 on, and see neither this project nor the worker's
environment: they travel as one archive in memory (``envs.sandbox.pack_programs``).

* ``keeper`` starts the zygote, gives it users of its own, and removes what is left when the worker dies.
* ``zygote`` has imported what snippets need, and forks the server of each box.
* ``server`` is the first process of a box: it runs commands and touches files when the worker asks.
"""
