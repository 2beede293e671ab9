"""Files that a command writes: what keeps it from doing so is found out before it starts.

Owns these checks and their wording; what is written, and when, is the commands'.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from minedraft.errors import ConfigError


def check_writable(path: Path, *, makes_folder: bool = False) -> None:
    """Try whether a file can be written; what it holds stays, and no empty one is left behind.

    With `makes_folder`, folders that are missing are made; else they are refused.

    Raises:
        ConfigError: names the file and the reason.
    """
    with writing(path):
        if path.is_dir():
            raise _refused(path, "it is a folder")
        if path.is_file():
            with path.open("a"):
                return
        if path.exists():
            # Not opened: a pipe would wait for its reader.
            if not os.access(path, os.W_OK):
                raise _refused(path, "no permission")
            return
        # A link to nowhere stays: what it points to is tried, and taken away again.
        place = path.resolve()
        if makes_folder:
            place.parent.mkdir(parents=True, exist_ok=True)
        elif not place.parent.is_dir():
            raise _refused(path, "its folder does not exist")
        with place.open("x"):
            pass
        place.unlink()


def check_distinct(files: Mapping[str, Path | None]) -> None:
    """Raise ConfigError if two options, by which `files` are named, are one file."""
    taken: dict[Path, str] = {}
    for flag, path in files.items():
        if path is None:
            continue
        place = path.resolve()
        if place in taken:
            raise ConfigError.bad_value(
                flag, str(path), f"a file other than that of {taken[place]}"
            )
        taken[place] = flag


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the OSError of a write into a ConfigError that names the file."""
    try:
        yield
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError(f"minedraft: cannot write {str(path)!r}: {why}")
