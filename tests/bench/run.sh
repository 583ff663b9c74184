#!/usr/bin/env bash
# What ftracefs costs and how fast it is: a table, how far each figure is from what it is to reach.
#
#   tests/bench/run.sh [--quick] [--json FILE] [--peer FILE] [GROUP...]
#
# GROUP is hot_path, patching, output, mount or linux; all by default, which takes some minutes. A
# machine with nothing else to do gives figures to go by; on a busy one, of which a line on stderr
# warns, the ratios hold. The column QEMU is a real Linux 6.1 under QEMU's TCG; --peer gives figures
# measured on the machine at hand instead. --quick only shows that all of it works, in seconds.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
./mount.sh --prepare
.venv/bin/python -c 'import pytest' 2>/dev/null || .venv/bin/python -m pip install --quiet --group test
PYTHONPATH=$root:$root/tests exec .venv/bin/python -m bench.run "$@"
