"""arq: the jobs of a killed worker are run again by another one."""

import asyncio

from arq import create_pool
from arq.connections import RedisSettings
from arq.jobs import JobStatus
from common import HOST, PORT, expect, killed_half_way, start, until


async def square(_, number):
    await asyncio.sleep(0.05)
    return number * number


class WorkerSettings:
    functions = [square]
    redis_settings = RedisSettings(HOST, PORT)
    max_jobs = 1
    job_timeout = 5
    poll_delay = 0.1


def main():
    loop = asyncio.new_event_loop()
    run = loop.run_until_complete
    pool = run(create_pool(WorkerSettings.redis_settings))
    jobs = [run(pool.enqueue_job("square", number)) for number in range(40)]
    done = lambda: sum(run(job.status()) == JobStatus.complete for job in jobs)
    worker = ["arq", "arq_jobs.WorkerSettings"]
    killed_half_way(lambda: start(*worker), done, len(jobs))
    until("all jobs were done", lambda: done() == len(jobs))
    expect("results", [run(job.result()) for job in jobs], [number * number for number in range(40)])


if __name__ == "__main__":
    from arq_jobs import main

    main()
