"""Servers for the tests that talk HTTP, started as a user would."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
ENGINE_FLAGS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512"]
ENGINE_FLAGS += ["--block-size", "32", "--kv-cache-memory-bytes", str(2**28)]
ENGINE_FLAGS += ["--max-num-seqs", "8"]
_START_S = 600


@contextmanager
def running_server(command: list[str]) -> Iterator[str]:
    """A server for the time of the context, on a free port; its address."""
    port = _free_port()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen([*command, "--port", str(port)], env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        _await_health(process, url)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def minedraft_flags(options: dict[str, Any]) -> list[str]:
    """minedraft's options as `minedraft serve` takes them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


def _await_health(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with code {process.returncode}"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail("the server did not come up")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
