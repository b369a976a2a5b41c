# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .box import EXEC_SECONDS as EXEC_SECONDS, Entry as Entry, ExecResult as ExecResult, ExecStatus as ExecStatus
from .box import MAX_FILE as MAX_FILE, MAX_OUTPUT as MAX_OUTPUT, Process as Process, Sandbox as Sandbox
from .box import Snapshot as Snapshot
from .spec import HOST_IMAGE as HOST_IMAGE, ISOLATIONS as ISOLATIONS, Isolation as Isolation, Resources as Resources
from .spec import SandboxSpec as SandboxSpec, check_spec as check_spec
from .usage import EndOfBox as EndOfBox, SandboxUsage as SandboxUsage
