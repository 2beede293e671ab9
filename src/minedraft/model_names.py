"""Finds out early that a model's folder is not there; whether a hub has it is not known here."""

from __future__ import annotations

from pathlib import Path

from minedraft.errors import ConfigError


def check_model_name(field: str, name: str) -> None:
    """Raise ConfigError for a name that can only be a path, and leads to nothing.

    A hub has names "model" and "owner/model". So a name is a path if it is absolute, begins
    with a dot or a tilde, has more than two parts, or begins with a folder that is here.
    """
    if "://" in name or Path(name).exists():
        return
    parts = Path(name).parts
    is_path = name[:1] in "/.~" or len(parts) > 2 or (len(parts) == 2 and Path(parts[0]).is_dir())
    if is_path:
        hint = " ('~' is not expanded here)" if name.startswith("~") else ""
        raise ConfigError.bad_value(
            field, name, f"a folder that exists, or a model's name on a hub{hint}"
        )
