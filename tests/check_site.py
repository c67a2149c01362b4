"""Check that every link, anchor and image within a built site leads somewhere.

python tests/check_site.py site
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Collects what a page links to, and the anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def broken_links(site: Path) -> list[str]:
    """Return "page: link" for every link within the site that leads nowhere."""
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            anchor = unquote(parts.fragment)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            has_anchor = not anchor or target not in pages or anchor in pages[target].anchors
            if not (target.exists() and has_anchor):
                broken.append(f"{path.relative_to(site.resolve())}: {link}")
    return broken


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = broken_links(folder)
    if found or not (folder / "index.html").exists():
        raise SystemExit("\n".join(["links that lead nowhere, or no site:", *found]))
    print(f"all links within {folder} lead somewhere")
