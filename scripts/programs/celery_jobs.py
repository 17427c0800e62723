"""Celery, as broker and for results: a worker is killed, and every job is done all the same."""

import time

from celery import Celery
from common import expect, killed_half_way, start, until, url

app = Celery("celery_jobs", broker=url(0), backend=url(1))
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 5},
    broker_connection_retry_on_startup=True,
)


@app.task
def square(number):
    time.sleep(0.05)
    return number * number


@app.task
def total(numbers):
    return sum(numbers)


def main():
    from celery import chord

    jobs = [square.delay(number) for number in range(60)]
    worker = ["celery", "-A", "celery_jobs", "worker", "--pool", "solo", "--loglevel", "error"]
    done = lambda: sum(job.ready() for job in jobs)
    killed_half_way(lambda: start(*worker), done, len(jobs))
    until("all jobs were done", lambda: done() == len(jobs))
    expect("results", [job.get() for job in jobs], [number * number for number in range(60)])
    summed = chord(square.s(number) for number in range(10))(total.s())
    expect("the sum of a chord", summed.get(timeout=120), 285)


if __name__ == "__main__":
    from celery_jobs import main

    main()
