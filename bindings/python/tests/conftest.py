"""Pools for the tests: in memory, in a file, and on memory nodes.

`DARTER_TEST_PROGRAM` names the program `darter`, which runs memory nodes; tests on memory nodes are
skipped without it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import darter
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def db() -> Iterator[darter.Store]:
    with darter.open("mem:64M") as store:
        yield store


@pytest.fixture
def url() -> Iterator[str]:
    """The name of a pool in a file, which does not exist yet."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield f"file:{directory}/pool?size=64M"


@pytest.fixture
def run() -> Run:
    """Runs a program of Python with arguments, and returns what it has written."""

    def start(code: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)

    return start


def memory_nodes(directory: Path) -> Iterator[str]:
    program = os.environ.get("DARTER_TEST_PROGRAM")
    if program is None:
        pytest.skip("DARTER_TEST_PROGRAM does not name the program `darter`, which runs memory nodes")
    nodes, addresses = [], []
    try:
        for _ in range(2):
            command = [program, "memnode", "--listen", "127.0.0.1:0", "--size", "64M"]
            node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            nodes.append(node)
            assert node.stdout is not None
            for line in node.stdout:
                if found := re.search(r"127\.0\.0\.1:([1-9]\d*)", line):
                    addresses.append(found[0])
                    break
        yield f"tcp://{','.join(addresses)}"
    finally:
        for node in nodes:
            node.kill()
            node.wait()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[str]:
    """The name of a new pool on two memory nodes."""
    yield from memory_nodes(tmp_path)
