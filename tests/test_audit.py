"""The audit of locked packages tells a vulnerability from a network that is not there."""

from __future__ import annotations

import pytest

from tests.check_audit import verdict

SAFE = {"name": "numpy", "version": "2.4.6", "vulns": []}
UNKNOWN = {"name": "scipy", "skip_reason": "Dependency not found on PyPI"}
UNSAFE = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2014-8"}]}


def test_a_known_vulnerability_fails() -> None:
    code, sentence = verdict({"dependencies": [SAFE, UNKNOWN, UNSAFE]}, "")
    assert code == 1
    assert "jinja2 2.4.1: PYSEC-2014-8" in sentence


def test_packages_without_one_pass() -> None:
    code, sentence = verdict({"dependencies": [SAFE, UNKNOWN]}, "No known vulnerabilities found")
    assert (code, sentence) == (
        0,
        "no known vulnerability in 1 packages, 1 not known to the source",
    )


@pytest.mark.parametrize(
    "errors",
    [
        "requests.exceptions.ConnectionError: Max retries exceeded",
        "ERROR:pip_audit._cli:Tip: your network may be blocking this service.",
        "requests.exceptions.ReadTimeout: timed out",
    ],
)
def test_an_unreachable_source_is_no_failure_and_is_said(errors: str) -> None:
    assert verdict(None, errors) == (
        0,
        "no advisory source could be reached; nothing was audited",
    )


def test_a_source_that_knows_no_package_has_audited_nothing() -> None:
    # As mirrors answer: pip-audit itself says "No known vulnerabilities found", with exit code 0.
    code, sentence = verdict({"dependencies": [UNKNOWN]}, "No known vulnerabilities found")
    assert code == 0
    assert "knows none of 1 packages; nothing was audited" in sentence


def test_another_failure_of_pip_audit_fails() -> None:
    code, sentence = verdict(None, "ERROR:pip_audit._cli:invalid requirements input: no-such-file")
    assert code == 1
    assert "invalid requirements input" in sentence
