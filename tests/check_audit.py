"""Ask pip-audit for known vulnerabilities of locked packages, and say whether it could look.

python tests/check_audit.py requirements-lock.txt requirements-tools.txt

Exits with 1 if a package has a known vulnerability, or if pip-audit itself fails. Where no advisory
source can be reached, it says so and exits with 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: What the last lines of pip-audit say when the network is the problem, not a package.
UNREACHED = ("ConnectionError", "Timeout", "network may be blocking", "ServiceError", "ProxyError")


def verdict(report: dict[str, Any] | None, errors: str) -> tuple[int, str]:
    """Return an exit code and a sentence.

    The exit code of pip-audit is not enough: it is 1 for a vulnerability as for a broken network,
    and 0 where an index answers "not found" for every package, as mirrors do.

    Args:
        report: its JSON; None if it wrote none.
        errors: what it wrote to stderr.
    """
    if report is None:
        if any(sign in errors for sign in UNREACHED):
            return 0, "no advisory source could be reached; nothing was audited"
        return 1, f"pip-audit failed:\n{errors}"
    audited = [package for package in report["dependencies"] if "skip_reason" not in package]
    skipped = len(report["dependencies"]) - len(audited)
    found = [
        f"{package['name']} {package['version']}: {vulnerability['id']}"
        for package in audited
        for vulnerability in package["vulns"]
    ]
    if found:
        return 1, "known vulnerabilities:\n" + "\n".join(found)
    if not audited:
        return 0, f"the advisory source knows none of {skipped} packages; nothing was audited"
    return (
        0,
        f"no known vulnerability in {len(audited)} packages, {skipped} not known to the source",
    )


def audit(path: str) -> tuple[int, str]:
    """Return the verdict on a requirements file."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "audit.json"
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip"]
        command += ["--progress-spinner", "off", "--format", "json", "--output", str(output)]
        done = subprocess.run(
            [*command, "--requirement", path], stderr=subprocess.PIPE, text=True, check=False
        )
        report = json.loads(output.read_text()) if output.exists() else None
    return verdict(report, done.stderr)


def main(paths: list[str]) -> int:
    """Audit one file after the other, print the verdicts and return the worst exit code."""
    worst = 0
    for path in paths:
        code, sentence = audit(path)
        print(f"pip-audit of {Path(path).name}: {sentence}")
        worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
