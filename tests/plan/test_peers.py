"""Our errors beside those of other planners."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "published" / "peers.py"


def test_we_beat_every_peer_on_the_rows_it_can_take() -> None:
    table = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True).stdout

    lines = table.splitlines()[1:]
    assert len(lines) == 7
    for line in lines:
        found = re.search(r" (\d+) +([\d.]+)(?:-[\d.]+)? +([\d.]+)   ", line)
        assert found is not None, line
        rows, theirs, ours = int(found[1]), float(found[2]), float(found[3])
        assert rows >= 3
        assert ours < theirs, line
