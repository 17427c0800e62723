#!/usr/bin/env python3
"""Compiles and runs the tests of redis-rs, for scripts/client-suites: each in a process of its own, since a test chooses the runtime of
its process.

  rust_tests.py build          prints the test programs of the workspace in the current folder
  rust_tests.py run PROGRAMS   runs the tests of these programs, and prints a line for each test: passed, failed or skipped, and its name
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The tests that use a server, without those of clusters, sentinels, TLS and modules.
TESTS = ["acl", "async", "auth", "basic", "cache", "geospatial", "script", "streams", "support"]
FEATURES = "acl streams geospatial script num-bigint tokio-comp smol-comp connection-manager cache-aio json ahash uuid rust_decimal " \
    "bigdecimal hashbrown r2d2 bb8"
SECONDS_MAX = 120


def build():
    command = ["cargo", "test", "--package", "redis", "--no-run", "--message-format", "json", "--features", FEATURES]
    for test in TESTS:
        command += ["--test", f"test_{test}"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and "test" in message["target"]["kind"]:
            print(message["target"]["name"], message["executable"])


def run_one(program, name):
    try:
        ran = subprocess.run([program, "--exact", name], capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return "failed", f"{name}: no end after {SECONDS_MAX} seconds\n"
    if ran.returncode != 0:
        return "failed", ran.stdout + ran.stderr
    return ("skipped" if " 0 passed" in ran.stdout else "passed"), ""


def run(programs):
    tests = []
    for line in Path(programs).read_text().splitlines():
        target, program = line.split(" ", 1)
        listed = subprocess.run([program, "--list", "--format", "terse"], stdout=subprocess.PIPE, text=True, check=True).stdout
        tests += [(target, program, line.removesuffix(": test")) for line in listed.splitlines() if line.endswith(": test")]
    with ThreadPoolExecutor(4) as pool:
        for (target, _, name), (outcome, log) in zip(tests, pool.map(lambda test: run_one(*test[1:]), tests)):
            print(outcome, f"{target}::{name}")
            sys.stderr.write(log)


build() if sys.argv[1] == "build" else run(sys.argv[2])
