"""The proofs on a machine with torch and no registry, from the kit: ``python3 tests/gpu/run.py KIT OUT [--rehearse]``.

Python is that of torch. Installs the wheels of KIT (``make gpu-kit``) into a folder, which goes before what Python has;
writes OUT/figures.json and OUT/page.md, then tests them. At most ten minutes. Standard library only.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 8
"""For the figures; the tests take a minute or two."""


def run(kit: Path, out: Path, options: list[str]) -> int:
    """Return 0 if all was measured and each proof holds."""
    began, wheels = time.monotonic(), sorted(map(str, kit.glob("*.whl")))
    with TemporaryDirectory(prefix="al-kit-") as site:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--no-cache-dir", "--upgrade", "--target", site, *wheels], check=True)
        print(f"{len(wheels)} wheels installed after {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
        known = {**os.environ, "PYTHONPATH": f"{ROOT}:{site}", "GPU_EVIDENCE": str(out.absolute() / "figures.json")}
        verify = ["-m", "agent_layer.cli", "verify-cluster", "--minutes", str(MINUTES), "--out", str(out), *options]
        proofs = ["-m", "pytest", "-q", "--confcutdir", str(ROOT / "tests/gpu"), "-p", "no:cacheprovider"]
        proofs.append(str(ROOT / "tests/gpu/test_proofs.py"))
        statuses = [
            subprocess.run([sys.executable, *one], env=known, check=False).returncode for one in (verify, proofs)
        ]
    print(f"exit statuses {statuses} after {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
