"""Huey: a killed consumer loses the job in progress at most, as its documentation says."""

import time

from common import HOST, PORT, expect, killed_half_way, start, until
from huey import RedisHuey

huey = RedisHuey("numbers", host=HOST, port=PORT)


@huey.task()
def square(number):
    time.sleep(0.05)
    return number * number


def main():
    jobs = [square(number) for number in range(40)]
    done = lambda: sum(job.get(preserve=True) is not None for job in jobs)
    consumer = ["huey.bin.huey_consumer", "huey_jobs.huey", "--workers", "1", "--quiet"]
    killed_half_way(lambda: start(*consumer), done, len(jobs))
    until("no job was left but the one in progress", lambda: done() >= len(jobs) - 1)
    until("the queue was empty", lambda: huey.pending_count() == 0)
    results = {number: job.get(preserve=True) for number, job in enumerate(jobs)}
    wrong = [number for number, found in results.items() if found not in (None, number * number)]
    expect("wrong results", wrong, [])
    with huey.lock_task("a lock"):
        expect("the lock is held", huey.is_locked("a lock"), True)


if __name__ == "__main__":
    from huey_jobs import main

    main()
