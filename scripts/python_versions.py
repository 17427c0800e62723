#!/usr/bin/env python3
"""Tests a wheel in every version of CPython that it is for, and that free-threaded Python refuses it. A version is either on
PATH (python3.14), or in a root of Debian packages; each other one is skipped with the reason. Prints a table.

  scripts/python_versions.py WHEEL

The variables of scripts/python-check name the programs that tests use.
"""

import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import ROOT
from release_root import empty, may_mount, run

# The suite of Debian that has the version. None has 3.12.
SUITES = {"3.11": "bookworm", "3.12": None, "3.13": "trixie", "3.14": "forky", "3.15": "forky"}
FREE_THREADED = ["3.13t", "3.14t", "3.15t"]
PACKAGES = ["base-files", "coreutils", "dash", "python3-hypothesis", "python3-msgpack", "python3-numpy", "python3-pip", "python3-pytest"]
PROGRAMS = ["DARTER_TEST_PROGRAM", "DARTER_TEST_TABLES"]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Skipped(Exception):
    """Why a version is not tested."""


def quiet(command, **options):
    """Runs a command. Returns whether it succeeded, and what it printed."""
    words = [str(part) for part in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    return done.returncode == 0, done.stdout


def on_path(version):
    """Returns the interpreter of a version on PATH, which may be a shim that has none."""
    python = shutil.which(f"python{version}")
    return python if python and quiet([python, "-c", ""])[0] else None


@functools.cache
def debian(folder, suite):
    """Makes a root with the Pythons of a Debian suite and the packages that the tests need. Installs nothing here."""
    if not may_mount():
        raise Skipped("it is not on PATH, and a root of Debian packages needs root's permission to mount")
    if not shutil.which("mmdebstrap"):
        raise Skipped("it is not on PATH, and a root of Debian packages needs mmdebstrap")
    root = Path(folder) / suite
    pythons = [f"python{version}" for version, its in SUITES.items() if its == suite]
    command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(PACKAGES + pythons)}"]
    # A mirror may be some weeks behind.
    command += ["--aptopt=Acquire::Check-Valid-Until \"false\"", suite, root, "http://deb.debian.org/debian"]
    made, output = quiet(command)
    if not made:
        raise Skipped(f"it is not on PATH, and mmdebstrap failed: {output.strip().splitlines()[-1]}")
    for name in ["bin", "sbin", "lib", "lib64"]:
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    for name in ["dev", "proc", "tmp", "src", "site", "programs", "etc/ssl/certs"]:
        (root / name).mkdir(parents=True, exist_ok=True)
    # pip reads it before it knows that it needs no network.
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / "etc/ssl/certs")
    return root


def test_in_root(root, version, wheel):
    """Installs the wheel in a root and runs the tests there. Returns their last line."""
    empty(root / "site")
    shutil.copy(wheel, root / "tmp")
    libraries = "/usr/lib/x86_64-linux-gnu"
    variables = {
        "PATH": "/usr/bin",
        "HOME": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": "/site:/src/bindings/python/tests",
        # Where numpy's libraries are before Debian's scripts have run.
        "LD_LIBRARY_PATH": f"{libraries}/blas:{libraries}/lapack",
    }
    for name in PROGRAMS:
        if name in os.environ:
            variables[name] = shutil.copy(os.environ[name], root / "programs").removeprefix(str(root))
    python = f"python{version} -P -m"
    script = f"""
        {python} pip install --quiet --root-user-action=ignore --no-deps --no-index --target /site /tmp/{wheel.name}
        cd /src/bindings/python
        {python} pytest -q -p no:cacheprovider tests
        {python} pytest -q -p no:cacheprovider --rootdir /site/darter --doctest-modules /site/darter"""
    mounts = [
        f"mount --rbind /dev {root}/dev",
        f"mount -t proc proc {root}/proc",
        f"mount -o bind,ro {ROOT} {root}/src",
    ]
    inside = ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), "dash", "-e", "-c", script]
    outside = " && ".join([*mounts, f"exec chroot {root} {shlex.join(inside)}"])
    # The mounts end with the process and its namespaces.
    return run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", outside])


def environment(python, folder):
    """Makes a virtual environment of an interpreter. Returns its Python."""
    run([python, "-m", "venv", empty(folder)])
    return folder / "bin/python"


def test_on_path(python, wheel, folder):
    """Installs the wheel and the packages of the tests in a new environment, and runs the tests there."""
    python = environment(python, folder)
    packages = [wheel, "hypothesis", "msgpack", "numpy", "pytest"]
    done, output = quiet([python, "-m", "pip", "install", "--quiet", "--prefer-binary", *packages])
    if not done:
        raise Skipped(f"pip cannot install what the tests need: {output.strip().splitlines()[-1]}")
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "bindings/python/tests"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    return run(command, cwd=ROOT / "bindings/python", env=variables)


def refused(python, wheel, folder):
    """Checks that pip refuses the wheel in a free-threaded Python."""
    python = environment(python, folder)
    done, output = quiet([python, "-m", "pip", "install", "--no-deps", "--no-index", wheel])
    if done or "is not a supported wheel" not in output:
        raise SystemExit(f"{python} must refuse {wheel}:\n{output}")
    return "pip refuses the wheel"


def one(version, wheel, folder):
    """Tests one version. Returns where it was found, and the result."""
    python = on_path(version)
    if version in FREE_THREADED:
        if not python:
            raise Skipped("it is not on PATH, and Debian has no free-threaded Python")
        return python, refused(python, wheel, folder / version)
    if python:
        where, output = python, test_on_path(python, wheel, folder / version)
    elif SUITES[version] is None:
        raise Skipped("it is not on PATH, and no suite of Debian has it")
    else:
        root = debian(folder, SUITES[version])
        python = shlex.join(["chroot", str(root), f"python{version}", "-VV"])
        where, output = f"Debian {SUITES[version]}: {run(['sh', '-c', python]).split('(')[0].strip()}", test_in_root(root, version, wheel)
    return where, "; ".join(line for line in output.splitlines() if " passed" in line)


def main():
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".whl"):
        print(__doc__, file=sys.stderr)
        raise SystemExit(2)
    wheel = Path(sys.argv[1]).resolve()
    if not wheel.is_file():
        raise SystemExit(f"{wheel} does not exist; scripts/python-check makes a wheel")
    with tempfile.TemporaryDirectory(prefix="darter-pythons-") as folder:
        for version in [*SUITES, *FREE_THREADED]:
            try:
                row = one(version, wheel, Path(folder))
            except Skipped as why:
                row = ("-", f"skipped: {why}")
            print(f"{version:6}{row[1]}" + (f"  ({row[0]})" if row[0] != "-" else ""), flush=True)


if __name__ == "__main__":
    main()
