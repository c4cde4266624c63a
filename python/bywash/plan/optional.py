"""Packages that only parts of this package need, imported at their first use."""

import importlib
from typing import Any

__all__ = ["needed"]


def needed(module: str, extra: str) -> Any:
    """Imports a module. If it is missing, raises an ImportError that tells which package to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"this needs {module}, which cannot be imported ({error}): pip install {module}, or 'bywash[{extra}]'"
        raise ImportError(text, name=module) from error
