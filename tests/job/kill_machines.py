"""Kill machines of training runs, a row of a page each: ``python tests/job/kill_machines.py DIRECTORY [--kills K]``.

veRL installs a package named ``tests``, which would be found before this folder; so the folder is named here.
"""

import sys
from pathlib import Path
from types import ModuleType

_FOLDER = ModuleType("tests")
_FOLDER.__path__ = [str(Path(__file__).parents[1])]
sys.modules["tests"] = _FOLDER

from tests.job.machine_kills import main  # noqa: E402  # after the folder has its name

sys.exit(main())
