"""``python -m agent_layer.local.pulse FILE --seconds 60`` probes the pulse of a worker."""

import sys

from agent_layer.infra import probe_pulse

if __name__ == "__main__":
    sys.exit(probe_pulse(sys.argv[1:]))
