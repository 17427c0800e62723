"""The jobs of rq_jobs.py."""

import time


def square(number):
    time.sleep(0.05)
    return number * number
