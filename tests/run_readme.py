"""Run the Python blocks of a Markdown file, each as a program of its own.

A block of text right behind one is what it must print. Needs nothing but the package, so that it
can prove a README in an environment without extras.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


def run_blocks(markdown: str) -> int:
    """Run every block and return how many there were."""
    count = 0
    for match in BLOCK.finditer(markdown):
        command = [sys.executable, "-W", "error", "-c", match["code"]]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        if match["output"] is not None and done.stdout != match["output"]:
            raise SystemExit(f"printed\n{done.stdout}\ninstead of\n{match['output']}")
        count += 1
    return count


if __name__ == "__main__":
    path = Path(sys.argv[1])
    count = run_blocks(path.read_text())
    print(f"{path}: {count} Python blocks run")
    if count == 0:
        raise SystemExit("there should be some")
