"""A crash whose memory dump would be written by the host."""

import resource

attempt(resource.setrlimit, resource.RLIMIT_CORE, (1 << 30, 1 << 30))
if resource.getrlimit(resource.RLIMIT_CORE)[1] > 1:  # no dump is as small
    escaped("memory dumps")
os.kill(os.getpid(), signal.SIGSEGV)
