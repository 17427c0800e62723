"""Two processes write one map; the beginning of docs/python.md."""

from multiprocessing import Process

import darter


def count(db: darter.Store) -> None:
    for _ in range(1000):
        db.modify(b"visits", lambda old: b"%d" % (int(old or b"0") + 1))


if __name__ == "__main__":
    with darter.open("file:/dev/shm/visits.pool?size=64M", truncate=True) as db:
        workers = [Process(target=count, args=(db,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        print(db[b"visits"])  # b'2000', with any start method
