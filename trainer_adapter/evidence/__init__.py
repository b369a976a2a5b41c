"""What GPUs do with an update, measured and put beside the arithmetic of the dry run.

======= =====================================================================================================
cases   models and rows that are measured, and what the arithmetic expects of each
measure one process of torch (or one for each GPU), which measures one case
buckets weights on their way into another process, as an engine that shares the GPU gets them
collect all cases one after another, each in its own process with a limit of time
page    tables in Markdown: what is expected, and what was found
cli     the command ``verify-cluster``
======= =====================================================================================================

A machine without a GPU rehearses all of it with a tiny model.
"""
