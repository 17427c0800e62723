"""Dramatiq: the messages of a killed worker are delivered to another one."""

import time

import dramatiq
from common import HOST, PORT, expect, killed_half_way, start, until
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import ResultMissing, Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(host=HOST, port=PORT, heartbeat_timeout=3000, maintenance_chance=100_000)
broker.add_middleware(Results(backend=RedisBackend(host=HOST, port=PORT)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True, max_retries=3)
def square(number):
    time.sleep(0.05)
    return number * number


def result(message):
    try:
        return message.get_result()
    except ResultMissing:
        return None


def main():
    messages = [square.send(number) for number in range(60)]
    done = lambda: sum(result(message) is not None for message in messages)
    worker = ["dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", "1"]
    killed_half_way(lambda: start(*worker), done, len(messages))
    until("all messages were processed", lambda: done() == len(messages))
    expect("results", [result(message) for message in messages], [number**2 for number in range(60)])


if __name__ == "__main__":
    from dramatiq_jobs import main

    main()
