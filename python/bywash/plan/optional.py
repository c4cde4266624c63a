"""Packages that only parts of this one need, imported when they are."""

import importlib
from typing import Any

__all__ = ["needed"]


def needed(module: str, extra: str) -> Any:
    """That module; where it is missing, an ImportError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        text = f"this needs {module}, which cannot be imported ({error}): pip install {module}, or 'bywash[{extra}]'"
        raise ImportError(text, name=module) from error
