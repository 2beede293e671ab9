"""The two servers, `minedraft serve` and `vllm serve` with the plugin installed, over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engines import draft_options
from servers import BIN, ENGINE_FLAGS, minedraft_flags, running_server

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module", params=["minedraft serve", "vllm serve"])
def url(request: pytest.FixtureRequest, pairs: dict[str, Any]) -> Iterator[str]:
    target, options = str(pairs["high"].target), draft_options(pairs["high"])
    if request.param == "minedraft serve":
        flags = minedraft_flags(options)
        command = [str(BIN / "minedraft"), "serve", target, *flags, *ENGINE_FLAGS]
    else:
        config = json.dumps({"minedraft": options})
        command = [str(BIN / "vllm"), "serve", target, "--additional-config", config]
        command += ENGINE_FLAGS
    with running_server(command) as url:
        yield url


def test_streaming_clients_at_1_4_and_16(url: str) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    model = client.models.list().data[0].id

    def ask(index: int) -> str:
        chunks = client.completions.create(
            model=model,
            prompt=f"request {index % 5}",
            max_tokens=24,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        return "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)

    alone = [ask(index) for index in range(5)]
    for concurrency in (4, 16):
        with ThreadPoolExecutor(concurrency) as pool:
            texts = list(pool.map(ask, range(2 * concurrency)))
        assert texts == [alone[index % 5] for index in range(2 * concurrency)]


_BENCH = """
import sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

for number in (1, 4, 16):
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    load = ["--num-prompts", str(2 * number), "--max-concurrency", str(number)]
    main(parser.parse_args([*sys.argv[1:], *load, "--result-filename", f"{number}.json"]))
"""
"""`vllm bench serve` several times, for the price of one start."""


@pytest.mark.parametrize("url", ["minedraft serve"], indirect=True)
def test_vllm_bench_serve_at_1_4_and_16(url: str, pairs: dict[str, Any], tmp_path: Path) -> None:
    command = [sys.executable, "-c", _BENCH, "--base-url", url]
    command += ["--model", str(pairs["high"].target), "--dataset-name", "random"]
    command += ["--random-input-len", "32", "--random-output-len", "16", "--ignore-eos"]
    command += ["--save-result", "--result-dir", str(tmp_path), "--disable-tqdm"]
    subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    for number in (1, 4, 16):
        figures = json.loads((tmp_path / f"{number}.json").read_text())
        assert figures["completed"] == 2 * number
        assert figures.get("failed", 0) == 0
