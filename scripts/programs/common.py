"""Helpers of the programs: the server's address, and workers that are killed."""

import atexit
import os
import signal
import subprocess
import sys
import time

HOST, PORT = os.environ.get("REDIS_HOST", "127.0.0.1"), int(os.environ["REDIS_PORT"])
# Long enough for anything that will happen on a busy machine.
LONG = 120


def url(database=0):
    """Returns the address of a database."""
    return f"redis://{HOST}:{PORT}/{database}"


def start(*arguments):
    """Starts a Python module as a worker, in the directory of the programs."""
    here = os.path.dirname(os.path.abspath(__file__))
    worker = subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=here, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    # Also if the program fails.
    atexit.register(kill, worker)
    return worker


def kill(worker):
    """Kills a worker and its processes."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def until(what, is_so):
    """Waits until `is_so` returns a true value, and returns it."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if found := is_so():
            return found
        time.sleep(0.05)
    sys.exit(f"it never happened that {what}")


def killed_half_way(start_worker, done, count):
    """Kills a worker when a part of `count` jobs is done, and starts another one.

    `done` returns the number of jobs that are done.
    """
    first = start_worker()
    until("a part of the jobs was done", lambda: done() >= count // 4)
    kill(first)
    if done() >= count:
        sys.exit("the worker was too fast to be killed half-way")
    start_worker()


def expect(what, found, expected):
    """Fails if a result is not the expected one."""
    if found != expected:
        sys.exit(f"{what}: expected {expected!r}, found {found!r}")
