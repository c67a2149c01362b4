"""Optional dependencies."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Args:
        module: name of the module.
        extra: the extra of jlgcn that installs it; "" if none does.
        purpose: subject of the error message.

    Example:
        >>> require("math", "ann", "a root").sqrt(4.0)
        2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != module.partition(".")[0]:
            raise
        package = module.partition(".")[0]
        wanted = f'"jlgcn[{extra}]", or in a clone: pip install ".[{extra}]"' if extra else package
        raise ModuleNotFoundError(
            f"{purpose} needs the package {package!r}, which is not installed; "
            f"run: pip install {wanted}",
            name=module,
        ) from None
