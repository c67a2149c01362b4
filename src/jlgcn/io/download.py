"""Downloads with retries and a verified SHA-256."""

from __future__ import annotations

import http.client
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path

from jlgcn._files import sha256_of, write_file

logger = logging.getLogger(__name__)


def download(
    url: str,
    path: Path,
    sha256: str,
    *,
    retries: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Download a file with a known SHA-256; `path` is created only if the hash is right.

    A retry downloads the whole file again: files here have a few megabytes. A wrong hash raises at
    once, as a retry would return the same bytes.

    Args:
        url: address of the file, https.
        path: file to write.
        sha256: hash of the file, in hexadecimal.
        retries (int, default 4): retries after a network error.
        timeout (float, default 30): seconds without a response that are a network error.
        pause (float, default 1): seconds before the first retry, doubled for each further one.

    Raises:
        ValueError: the file at `url` has another hash.
        ConnectionError: all attempts failed.
    """
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise ValueError(f"files are fetched by https, but the address is {url}")
    for attempt in range(retries + 1):
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:  # noqa: S310
                content: bytes = response.read()
            break
        except (OSError, http.client.HTTPException) as problem:
            if isinstance(problem, urllib.error.HTTPError) and problem.code in (403, 404, 410):
                raise ConnectionError(f"{url} is not there any more ({problem})") from None
            if attempt == retries:
                raise ConnectionError(
                    f"{url} could not be fetched after {retries + 1} tries ({problem}); check the "
                    "connection and call again"
                ) from None
            logger.info("%s: %s; trying again", url, problem)
            time.sleep(pause * 2**attempt)
    found = sha256_of(content)
    if found != sha256:
        raise ValueError(
            f"what {url} sent is not the published file: its SHA-256 is {found[:16]}… where "
            f"{sha256[:16]}… was expected; nothing was kept. Get the file from somewhere else"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_file(path, content)
