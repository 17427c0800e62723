#!/usr/bin/env python3
"""The outcomes of clients' suites, for scripts/client-suites.

  outcomes.py read junit|mocha|hiredis FILE    prints a line for each test: passed, failed or skipped, and its name
  outcomes.py compare LIST WORK SUITE...       compares WORK/SUITE/redis.outcomes with WORK/SUITE/gateway.outcomes
"""

import json
import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def of_junit(path):
    for case in xml.parse(path).iter("testcase"):
        kinds = {part.tag for part in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        yield outcome, f"{case.get('classname').removeprefix('tests.')}::{case.get('name')}"


def of_mocha(path):
    report = json.loads(Path(path).read_text())
    for kind, outcome in [("passes", "passed"), ("failures", "failed"), ("pending", "skipped")]:
        for test in report[kind]:
            # A failure of a hook is not one of a test, and hides those that do not run.
            if " hook " not in test["title"]:
                yield outcome, test["fullTitle"]


def of_hiredis(path):
    text = re.sub(r"\x1b\[[0-9;]*m", "", Path(path).read_text(errors="replace"))
    section = ""
    for line in text.splitlines():
        if line.startswith("Testing "):
            section = re.sub(r" \(.*", "", line) + ": "
        test = re.match(r"#\d+ (.*?): ?(.*)", line)
        if test:
            outcomes = [("PASSED", "passed"), ("SKIPPED", "skipped"), ("", "failed")]
            yield next(outcome for word, outcome in outcomes if word in test[2]), section + test[1]


def outcomes(path):
    """Returns the outcome of each name: of several tests with one name the worst."""
    found = {}
    for line in Path(path).read_text(errors="replace").splitlines() if Path(path).exists() else []:
        outcome, _, name = line.partition(" ")
        order = ["failed", "passed", "skipped"]
        found[name] = min(outcome, found.get(name, "skipped"), key=order.index)
    return found


def entries(path, suite):
    """Returns the tests of a suite in the list: a name, or after / a regular expression; and the reasons."""
    for line in Path(path).read_text().splitlines():
        if line and not line.startswith("#"):
            of, name, reason = line.split(" | ")
            if of == suite:
                yield name, re.compile(name[1:]) if name.startswith("/") else re.compile(re.escape(name) + r"\Z"), reason


def compare(listed, work, suites):
    is_wrong = False
    print(f"{'suite':12} {'passed of passed there':>24} {'share':>7} {'in the list':>12} {'failed':>7} {'only here':>10} {'skipped':>8}")
    for suite in suites:
        theirs, ours = (outcomes(Path(work, suite, f"{server}.outcomes")) for server in ("redis", "gateway"))
        passed = [name for name, outcome in theirs.items() if outcome == "passed"]
        if not passed:
            print(f"{suite}: did not run: see {Path(work, suite)}/redis/", file=sys.stderr)
            is_wrong = True
            continue
        names = list(entries(listed, suite))
        lost = [name for name in passed if ours.get(name) != "passed"]
        unlisted = [name for name in lost if not any(pattern.match(name) for _, pattern, _ in names)]
        more = sum(outcome == "passed" and theirs.get(name) != "passed" for name, outcome in ours.items())
        skipped = sum(outcome == "skipped" for outcome in ours.values())
        both = len(passed) - len(lost)
        print(f"{suite:12} {f'{both} of {len(passed)}':>24} {both / len(passed):>7.1%} {len(lost) - len(unlisted):>12} "
              f"{len(unlisted):>7} {more:>10} {skipped:>8}", flush=True)
        for name in unlisted:
            print(f"{suite}: passes on redis-server, and not on the gateway ({ours.get(name, 'not run')}): {name}", file=sys.stderr)
        for name, pattern, _ in names:
            if not any(pattern.match(other) for other in passed):
                print(f"{suite}: redis-server passes no test {name}, as the list says", file=sys.stderr)
                is_wrong = True
            elif not any(pattern.match(other) for other in lost):
                print(f"{suite}: passes on the gateway too: {name}", file=sys.stderr)
        is_wrong |= bool(unlisted)
    return is_wrong


if sys.argv[1] == "read":
    for outcome, name in {"junit": of_junit, "mocha": of_mocha, "hiredis": of_hiredis}[sys.argv[2]](sys.argv[3]):
        print(outcome, " ".join(name.split()))
else:
    sys.exit(compare(sys.argv[2], sys.argv[3], sys.argv[4:]))
