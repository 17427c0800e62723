"""Processes that share a pool: forked, spawned, pickled handles, killed."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import darter
import pytest
from conftest import Run

METHODS = ["fork", "spawn", "forkserver"]


def forked(work: Any) -> int:
    """Runs `work` in a child without `exec`. Returns its exit status."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(process, 0)[1]


def test_a_child_opens_an_inherited_store_again(url: str) -> None:
    with darter.open(url) as db:
        db.update({b"%03d" % number: b"" for number in range(100)})
        pairs, transaction = db.range(), db.transaction()
        assert next(pairs)[0] == b"000"

        def child() -> None:
            assert len([key for key, _ in pairs]) == 99, "an iterator continues"
            with pytest.raises(darter.ClosedError, match="parent"):
                transaction.commit()
            db[b"child"] = b"%d" % os.getpid()
            assert os.getpid() in db.stats()["members"] and os.getppid() in db.stats()["members"]
            db.transact(lambda tx: tx.put(b"more", b""))
            db.close()

        assert forked(child) == 0
        assert int(db[b"child"]) and b"more" in db and len(list(pairs)) == 101
        transaction[b"parent"] = b""
        transaction.commit()
        assert db.check()["sound"]


def test_a_child_of_a_child(url: str) -> None:
    with darter.open(url) as db:

        def grandchild() -> None:
            db[b"grandchild"] = b"1"

        def child() -> None:
            db[b"child"] = b"1"
            assert forked(grandchild) == 0
            assert db[b"grandchild"] == b"1"

        assert forked(child) == 0
        assert list(db) == [b"child", b"grandchild"]


def test_a_pool_in_memory_is_not_inherited(db: darter.Store) -> None:
    def child() -> None:
        with pytest.raises(darter.ForkedError, match="file:"):
            db[b"key"] = b"value"
        db.close()

    assert forked(child) == 0
    with pytest.raises(darter.UsageError, match="file:"):
        pickle.dumps(db)
    db[b"key"] = b"value"


def test_forks_while_threads_work(url: str) -> None:
    with darter.open(url) as db:
        end = threading.Event()

        def work() -> None:
            while not end.is_set():
                db.modify(b"count", lambda old: b"%d" % (int(old or b"0") + 1))
                db.stats()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(20):
                assert forked(lambda: db.__setitem__(b"child %d" % number, b"")) == 0
        finally:
            end.set()
            for thread in threads:
                thread.join()
        assert db.count(b"child") == 21  # and the count


def test_a_child_that_outlives_its_killed_parent_is_another_member(url: str, run: Run) -> None:
    darter.open(url).close()
    code = (
        "import darter, os, signal, sys\n"
        "db = darter.open(sys.argv[1]); db[b'parent'] = b'%d' % os.getpid()\n"
        "if os.fork() == 0:\n"
        "    sys.stdin.read(); os._exit(0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The child holds the pipe's other end open until this test closes it.
    process = subprocess.Popen([sys.executable, "-c", code, url], stdin=subprocess.PIPE)
    assert process.wait(120) == -signal.SIGKILL
    with darter.open(url) as db:
        parent = int(db[b"parent"])
        assert db.check(repair=True)["sound"]
        assert parent not in db.stats()["members"], "the child does not keep it alive"
    assert process.stdin is not None
    process.stdin.close()


def add(db: darter.Store, number: int) -> None:
    for _ in range(50):
        db.modify(b"count", lambda old: b"%d" % (int(old or b"0") + 1))
    db[b"process %d" % number] = b""


@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing(url: str, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with darter.open(url, truncate=True) as db:
        processes = [context.Process(target=add, args=(db, number)) for number in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert db[b"count"] == b"150" and db.count(b"process") == 3


@pytest.mark.parametrize("method", METHODS)
def test_concurrent_futures(url: str, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with darter.open(url) as db, concurrent.futures.ProcessPoolExecutor(2, context) as pool:
        list(pool.map(add, [db] * 4, range(4)))
        assert db[b"count"] == b"200"


def test_a_relative_path_stays_valid(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = os.path.dirname(url.removeprefix("file:").split("?")[0])
    monkeypatch.chdir(directory)
    with darter.open("file:pool?size=64M") as db:
        db[b"key"] = b"value"
        monkeypatch.chdir("/")
        assert forked(lambda: db.__delitem__(b"key")) == 0
        assert pickle.loads(pickle.dumps(db)).url.startswith(f"file:{directory}/pool")


def serve(listener: socket.socket, db: darter.Store) -> None:
    """Counts requests, each a connection, as a worker of a prefork server does."""
    while True:
        connection, _ = listener.accept()
        with connection:
            count = db.modify(b"count", lambda old: b"%d" % (int(old or b"0") + 1))
            assert count is not None
            db[b"worker %d" % os.getpid()] = count
            connection.sendall(count)


def test_a_prefork_server_whose_workers_are_killed(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, darter.open(url) as db:
        db[b"count"] = b"0"  # before the fork, as an application that is loaded first does
        workers: list[int] = []

        def start() -> None:
            process = os.fork()
            if process == 0:
                try:
                    serve(listener, db)
                finally:
                    os._exit(1)
            workers.append(process)

        def end(process: int) -> None:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            workers.remove(process)

        answers = set()
        try:
            for _ in range(3):
                start()
            for number in range(200):
                with socket.create_connection(listener.getsockname(), 120) as client:
                    answers.add(client.recv(100))  # empty if its worker was killed
                if number % 40 == 20:
                    end(workers[0])
                    start()
            assert db.stats()["members"].count(os.getpid()) == 1
        finally:
            for process in list(workers):
                end(process)
        count = int(db[b"count"])
        answered = {int(answer) for answer in answers if answer}
        assert len(answered) >= 195 and max(answered) <= count <= 200
        check = db.check(repair=True)
        assert check["sound"] and db.stats()["members"] == [os.getpid()], check


def test_a_notebook_that_is_killed_while_its_processes_work(url: str, run: Run) -> None:
    """The processes complete their work, and nothing that the kernel has stored is lost."""
    code = (
        "import concurrent.futures, darter, multiprocessing, os, signal, sys, threading\n"
        "from test_processes import add\n"
        "db = darter.open(sys.argv[1]); pairs = db.range(); tx = db.transaction(); tx[b'never'] = b''\n"
        "with concurrent.futures.ProcessPoolExecutor(2) as pool: list(pool.map(add, [db] * 4, range(4)))\n"
        "threading.Thread(target=lambda: [db.stats() for _ in iter(int, 1)], daemon=True).start()\n"
        "processes = [multiprocessing.get_context('fork').Process(target=add, args=(db, number)) for number in range(4, 7)]\n"
        "for process in processes: process.start()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with darter.open(url) as db:
        kernel = run(code, url)  # and its processes have ended
        assert kernel.returncode == -signal.SIGKILL, kernel.stderr
        assert int(db[b"count"]) == 350 and db.count(b"process") == 7 and b"never" not in db
        db[b"after"] = b"restart"
        check = db.check(repair=True)
        assert check["sound"] and db.stats()["members"] == [os.getpid()], check


WRITER = """
import os, sys, darter
db = darter.open(sys.argv[1])
tables = db.table("log", key=(int, int), value=bytes)
number = 0
while True:
    number += 1
    tables[os.getpid(), number] = b"v" * (number % 300)
    def pair(tx, name=b"%d" % os.getpid()):
        tx[b"a" + name] = tx[b"b" + name] = b"%d" % number
    db.transact(pair)
    print(number, flush=True)
"""


def test_killed_writers_lose_nothing(url: str) -> None:
    with darter.open(url) as db:
        log = db.table("log", key=(int, int), value=bytes)
        for round in range(4):
            writers = [
                subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
                for _ in range(2)
            ]
            for writer in writers:
                assert writer.stdout is not None
                for _ in range(50 + 37 * round):
                    writer.stdout.readline()
                writer.kill()
                acknowledged = [int(line) for line in writer.stdout.read().split("\n")[:-1]]
                writer.wait()
                last = max(acknowledged, default=50 + 37 * round)
                found = [number for (_, number), _ in log.prefix((writer.pid,))]
                assert len(found) == found[-1] >= last
                name = b"%d" % writer.pid
                assert db[b"a" + name] == db[b"b" + name] and int(db[b"a" + name]) >= last
    # Blocks that the first member has taken from killed writers are repaired after it has left.
    with darter.open(url) as db:
        check = db.check(repair=True)
        assert check["sound"] and check["leaked_bytes"] == 0, check
