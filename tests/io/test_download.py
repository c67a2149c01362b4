"""Downloads against a real server on loopback that misbehaves on demand."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from jlgcn.io.download import download

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    cuts_left = 0
    num_requests = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.num_requests += 1
        if self.path != "/file":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.server.cuts_left -= 1
        body = CONTENT if self.server.cuts_left < 0 else CONTENT[:100_000]
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(server: Server, folder: Path, *, sha256: str = SHA256, name: str = "file") -> Path:
    url = f"http://127.0.0.1:{server.server_port}/{name}"
    return download(url, folder / "deep" / "file", sha256, retries=2, pause=0.01, timeout=5)


def test_a_file_arrives(server: Server, tmp_path: Path) -> None:
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["file"]


def test_a_wrong_hash_leaves_nothing_and_is_not_tried_again(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not the published file.*nothing was kept"):
        fetch(server, tmp_path, sha256="0" * 64)
    assert not (tmp_path / "deep").exists()
    assert server.num_requests == 1


def test_a_cut_connection_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.cuts_left = 2
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert server.num_requests == 3


def test_a_connection_that_is_always_cut_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.cuts_left = 3
    with pytest.raises(ConnectionError, match=r"after 3 tries.*call again"):
        fetch(server, tmp_path)
    assert not (tmp_path / "deep").exists()


def test_a_link_in_the_place_of_the_file_is_not_written_through(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "deep" / "file").symlink_to(tmp_path / "mine")
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert not path.is_symlink()
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_file_that_is_gone_is_not_tried_again(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="is not there any more"):
        fetch(server, tmp_path, name="other")
    assert server.num_requests == 1


def test_no_server_at_all(tmp_path: Path) -> None:
    server = Server(("127.0.0.1", 0), Handler)
    server.server_close()
    with pytest.raises(ConnectionError, match="could not be fetched after 3 tries"):
        fetch(server, tmp_path)


def test_other_protocols_are_refused(tmp_path: Path) -> None:
    for url in ("http://example.org/file", "file:///etc/passwd", "ftp://example.org/file"):
        with pytest.raises(ValueError, match="fetched by https"):
            download(url, tmp_path / "file", SHA256)
