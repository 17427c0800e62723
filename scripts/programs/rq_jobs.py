"""RQ: of the jobs of a killed worker only the one in progress is left, and can be put back."""

from common import HOST, PORT, expect, killed_half_way, start, until, url
from redis import Redis
from rq import Queue
from rq.registry import StartedJobRegistry
from rq_functions import square

connection = Redis(HOST, PORT)
queue = Queue("numbers", connection=connection)
jobs = [queue.enqueue(square, number, result_ttl=600) for number in range(40)]


def done():
    return sum(job.get_status(refresh=True) == "finished" for job in jobs)


def worker():
    return start("rq.cli", "worker", "--url", url(), "--quiet", "-w", "rq.SimpleWorker", "numbers")


killed_half_way(worker, done, len(jobs))
until("no job was left but the one in progress", lambda: done() >= len(jobs) - 1)
started = StartedJobRegistry(queue=queue)
for job in jobs:
    if job.get_status(refresh=True) != "finished":
        job.requeue() if job.is_failed else queue.enqueue_job(job)
until("all jobs were done", lambda: done() == len(jobs))
expect("results", [job.return_value() for job in jobs], [number * number for number in range(40)])
