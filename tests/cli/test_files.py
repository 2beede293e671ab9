"""Files that cannot be written are found out beforehand, and nothing is left of the trial."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minedraft.cli import files
from minedraft.cli.files import check_distinct, check_writable, writing
from minedraft.errors import ConfigError


def test_a_trial_leaves_no_file_and_changes_none(tmp_path: Path) -> None:
    new, old, link = (tmp_path / name for name in ("new", "old", "link"))
    old.write_text("kept")
    link.symlink_to(tmp_path / "not-there")
    for path in (new, old, link):
        check_writable(path)
    assert old.read_text() == "kept"
    assert sorted(tmp_path.iterdir()) == [link, old]
    assert link.is_symlink()


def test_folders_are_made_if_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "f.json"
    with pytest.raises(ConfigError, match="its folder does not exist"):
        check_writable(path)
    assert not (tmp_path / "a").exists()
    check_writable(path, makes_folder=True)
    assert path.parent.is_dir()
    assert not path.exists()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path, why in (
        (tmp_path, "it is a folder"),
        (file / "inside", "its folder does not exist"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with pytest.raises(ConfigError, match=f"cannot write '{path}': {why}"):
            check_writable(path)
    with pytest.raises(ConfigError, match=r"cannot write .*File exists|Not a directory"):
        check_writable(file / "inside", makes_folder=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="to the superuser everything may be written")
def test_folders_and_files_without_permission(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir(mode=0o500)
    file.touch(mode=0o400)
    for path in (folder / "p.json", file):
        with pytest.raises(ConfigError, match="cannot write"):
            check_writable(path)


def test_files_that_the_system_does_not_let_us_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="no permission"):
        check_writable(pipe)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")


def test_two_options_with_one_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    (tmp_path / "link").symlink_to(path)
    check_distinct({"--a": path, "--b": None, "--c": tmp_path / "other"})
    with pytest.raises(ConfigError, match=r"--b = .*link.* other than that of --a"):
        check_distinct({"--a": path, "--b": tmp_path / "link"})


def test_errors_of_a_write_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "no" / "f"
    with pytest.raises(ConfigError, match=f"cannot write '{path}': No such file"), writing(path):
        path.write_text("x")
