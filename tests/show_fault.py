"""Write a made-up run into a store, and serve its page: ``python tests/show_fault.py NAME DIR [--port P]``.

veRL installs a package named ``tests``, which would be found before this folder; so the folder is named here.
"""

import sys
from pathlib import Path
from types import ModuleType

_FOLDER = ModuleType("tests")
_FOLDER.__path__ = [str(Path(__file__).parent)]
sys.modules["tests"] = _FOLDER

from tests.faults import main  # noqa: E402  # after the folder has its name

main()
