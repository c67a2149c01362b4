"""The one writer of files: whole or not at all, never through a link, one at a time."""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import time
from pathlib import Path

import pytest

from jlgcn._files import (
    LOCK,
    locked,
    new_folder,
    remove_folder,
    remove_leftovers,
    replacing,
    write_file,
)


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content in ("old", "new"):
        assert write_file(path, content).read_text() == content
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "report.html").symlink_to(tmp_path / "mine")
    write_file(tmp_path / "report.html", "page")
    assert (tmp_path / "mine").read_text() == "precious"
    assert not (tmp_path / "report.html").is_symlink()


def test_a_name_that_somebody_guessed_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 16)
    (tmp_path / "mine").write_text("precious")
    (tmp_path / f".a.{'0' * 16}.tmp").symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a", "page")
    assert (tmp_path / "mine").read_text() == "precious"


def test_after_an_error_the_old_file_stays_and_nothing_is_left(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a", "old")
    writer = replacing(path)
    writer.__enter__().write(b"new")
    with pytest.raises(RuntimeError, match="half way"):
        writer.gen.throw(RuntimeError("half way"))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_folders_and_devices_are_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder and cannot be written; name a file"):
        write_file(tmp_path, "x")
    with pytest.raises(ValueError, match="no ordinary file"):
        write_file("/dev/null", "x")


def _hold(folder: Path, seconds: float) -> None:
    with locked(folder):
        (folder / "held").touch()
        time.sleep(seconds)


def test_a_folder_has_one_writer_at_a_time_and_a_dead_one_gives_way(tmp_path: Path) -> None:
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(tmp_path, 60.0))
    holder.start()
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    with pytest.raises(TimeoutError, match="another process has been writing"):
        locked(tmp_path, seconds=0.05).__enter__()
    holder.kill()
    holder.join()
    with locked(tmp_path, seconds=5.0):
        assert (tmp_path / LOCK).exists()


def test_a_filesystem_without_locks_is_written_to_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path):
        pass
    assert "this filesystem has no locks" in caplog.text


def test_leftovers_of_a_killed_writer_go_and_other_files_stay(tmp_path: Path) -> None:
    for name in (".a.json.0123456789abcdef.tmp", ".b.json.0123456789abcdef.tmp", ".a.json.tmp"):
        (tmp_path / name).touch()
    (tmp_path / ".a.json.fedcba9876543210.tmp").mkdir()
    (tmp_path / ".a.json.fedcba9876543210.tmp" / "part").touch()
    (tmp_path / ".a.json.0000000000000000.tmp").symlink_to(tmp_path)
    remove_leftovers(tmp_path, re.compile(r"a\.json"))
    stay = [".a.json.0000000000000000.tmp", ".a.json.tmp", ".b.json.0123456789abcdef.tmp"]
    assert sorted(os.listdir(tmp_path)) == stay


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a") as temporary:
        write_file(temporary / "part", "content")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a" / "part").read_text() == "content"
    with pytest.raises(OSError, match="not empty"), new_folder(tmp_path / "a") as temporary:
        write_file(temporary / "part", "other content")
    assert (tmp_path / "a" / "part").read_text() == "content"
    assert os.listdir(tmp_path) == ["a"]
    remove_folder(tmp_path / "a")
    assert os.listdir(tmp_path) == []
