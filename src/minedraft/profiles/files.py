"""Reading and writing the JSON file of a profile.

Owns the file and the errors about it; what the fields mean is `profile`'s.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from minedraft.bench.provenance import Provenance
from minedraft.errors import ConfigError
from minedraft.profiles.profile import PROFILE_VERSION, Profile
from minedraft.validation import as_mapping, refuse_unknown


def read_profile(path: str | Path) -> Profile:
    """The profile in a file.

    Raises:
        ConfigError: it cannot be read, is of another version, or a field is not allowed; names
            the file and the field, its value and what is allowed.
    """
    where = f"profile {str(path)!r}"
    try:
        table = msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"minedraft: cannot read {where}: {error.strerror or error}") from error
    # RecursionError: brackets in brackets without end.
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"minedraft: {where} is no JSON: {error}") from error
    options = as_mapping(where, table)
    version = options.get("version")
    if version != PROFILE_VERSION or isinstance(version, bool):
        raise ConfigError.bad_value(f"{where}: version", version, str(PROFILE_VERSION))
    origin = as_mapping(f"{where}: provenance", options.get("provenance"))
    refuse_unknown(f"{where}: provenance", origin, Provenance.__struct_fields__)
    try:
        return msgspec.convert(options, Profile)
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error).removeprefix("minedraft: ")
        raise ConfigError(f"minedraft: {where}: {text}") from error


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write the file, whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    path = Path(path)
    data = msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp's file is its owner's alone; a result is as readable as any other file.
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    # The system has no way to ask but to set it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"minedraft: cannot write {str(path)!r}: {error.strerror or error}")
