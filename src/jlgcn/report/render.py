"""HTML pages from autoescaping templates: data are shown as text, never as markup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(
    template: str,
    *,
    styles: Sequence[str],
    script: str,
    **content: object,
) -> str:
    """Return a self-contained page that loads nothing and runs one script only.

    Every value is escaped. Inside ``<script type="application/json">`` the filter ``tojson``
    leaves no ``<``, ``>`` or ``&``: ``</script`` would end the element, and ``<!--`` change how its
    end is found. A Content-Security-Policy forbids all else, forms and ``<base>`` included. It
    cannot forbid ``<meta http-equiv=refresh>``, so the escaping is essential.

    Args:
        template: name of a file in ``templates`` that extends ``layout.html``.
        styles: names of style sheets of this package, in order.
        script: name of a script of this package.
        content: variables of the template; a missing one raises.
    """
    code = "\n" + _file(script)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            content,
            digest=digest,
            script=Markup(code),  # noqa: S704, a file of this package
            style=Markup("\n".join(map(_file, styles))),  # noqa: S704, likewise
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("jlgcn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}  # browsers cannot read NaN
    return environment


def _file(name: str) -> str:
    return resources.files("jlgcn.report").joinpath(name).read_text(encoding="utf-8")
