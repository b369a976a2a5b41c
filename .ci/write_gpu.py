"""The tables of docs/internals/gpu.md: what the dry run's arithmetic expects, and what was measured.

python .ci/write_gpu.py                   write what is expected
python .ci/write_gpu.py FIGURES.json      also add what was measured (a file of 'agent-layer verify-cluster')
python .ci/write_gpu.py --check           exit status 1 if the page expects something else than the code
"""

import sys
from pathlib import Path

import msgspec

from trainer_adapter.evidence.page import write_evidence, write_expected
from trainer_adapter.evidence.records import Evidence

PAGE = Path(__file__).resolve().parents[1] / "docs/internals/gpu.md"
BEGIN, END = "<!-- written by .ci/write_gpu.py -->\n\n", "\n<!-- end -->\n"
NONE = "\nNothing yet: no GPU has been at hand.\n"


def main() -> int:
    """Write the page, or compare it; return the exit status."""
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, rest = rest.partition(END)
    for path in (one for one in sys.argv[1:] if one != "--check"):
        evidence = msgspec.json.decode(Path(path).read_bytes(), type=Evidence)
        rest = rest.replace(NONE, "\n") + write_evidence(evidence).replace("## ", "\n### ", 1)
    new = before + begin + write_expected() + end + rest
    if "--check" not in sys.argv:
        PAGE.write_text(new)
    elif new != text:
        print(f"{PAGE.name}: expected what trainer_adapter/evidence computes; run .ci/write_gpu.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
