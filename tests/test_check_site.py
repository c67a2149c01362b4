from __future__ import annotations

from pathlib import Path

from tests.check_site import broken_links


def test_links_anchors_and_images_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.html").write_text(
        '<a href="../two.html#here">good</a><a href="../two.html#there">no such anchor</a>'
        '<a href="three.html">no such page</a><img src="../four.png">'
        '<a href="https://example.org/unknown">not ours</a><a href="#top" id="top">itself</a>'
    )
    (tmp_path / "two.html").write_text('<h1 id="here">here</h1>')
    assert broken_links(tmp_path) == [
        "a/one.html: ../two.html#there",
        "a/one.html: three.html",
        "a/one.html: ../four.png",
    ]
