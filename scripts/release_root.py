"""Clean roots: folders that hold a package, the system libraries that its programs need, and nothing else."""

import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from pages import ROOT

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# What a user does first.
FIRST_STEPS = [
    (["put", "pear", "green"], ""),
    (["get", "pear"], "green"),
    (["check"], None),
    (["bench", "--records", "1000", "--ops", "1000", "--workload", "load,c"], None),
]


def run(command, **options):
    """Runs a command and returns its output. Fails with all that it printed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def commit_time():
    """The time of the last commit, which all files in packages get."""
    return run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).strip()


def add_libraries(root, program):
    """Copies the system libraries of a program into a root."""
    for path in re.findall(r"(/\S+\.so\S*)", run(["ldd", program])):
        there = root / path.lstrip("/")
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there)


@functools.cache
def may_mount():
    """Whether this user may change the root of a process and mount there."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def in_root(root, command, **variables):
    """Runs a command that is in a root: with that root, /proc and /dev/null only, if the user may do that. Returns its output."""
    if not may_mount():
        return run([root / command[0].lstrip("/"), *command[1:]], env=variables)
    for folder in ["proc", "dev"]:
        (root / folder).mkdir(exist_ok=True)
    (root / "dev/null").touch()
    mounts = f"mount -t proc proc {root}/proc && mount --bind /dev/null {root}/dev/null"
    script = f"{mounts} && exec chroot {root} {shlex.join(command)}"
    # The mounts end with the process and its namespaces.
    return run(["unshare", "--mount", "--pid", "--fork", "sh", "-c", script], env={"PATH": PATH, **variables})


def try_program(root, program):
    """Runs the program of a root as a user would. Returns its version."""
    add_libraries(root, root / program.lstrip("/"))
    (root / "tmp").mkdir(exist_ok=True)
    pool = "/tmp/fruit.pool" if may_mount() else root / "tmp/fruit.pool"
    for words, expected in FIRST_STEPS:
        variables = {} if words[0] == "bench" else {"DARTER_POOL": f"file:{pool}?size=16M"}
        printed = in_root(root, [program, *words], **variables).strip()
        if expected is not None and printed != expected:
            raise SystemExit(f"{program} {' '.join(words)} printed {printed!r}, not {expected!r}")
    return in_root(root, [program, "--version"]).split()[-1]


def empty(folder):
    """Returns a folder that exists and is empty."""
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
