"""An interpreter whose functions lie."""

import builtins

os._exit = lambda code: None
os.write = lambda *arguments: 0
sys.exit = builtins.exit = lambda code=None: None
sys.excepthook = lambda *arguments: None
builtins.print = lambda *arguments, **options: None
for name in list(sys.modules):
    if name not in ("sys", "builtins"):
        del sys.modules[name]
raise SystemError("unseen")
