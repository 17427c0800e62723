"""Django's cache, django-redis and Flask-Caching. A process that writes to the cache is killed."""

import multiprocessing
import os
import signal
import sys

from common import expect, until, url


def write(name):
    """Writes to a cache until the process is killed."""
    cache = cache_of(name)
    number = 0
    while True:
        cache.set_many({f"a{number % 50}": number, f"b{number % 50}": number})
        cache.set("last", number)
        number += 1


def cache_of(name):
    from django.core.cache import caches

    return caches[name]


def check_django(name):
    cache = cache_of(name)
    cache.clear()
    cache.set("plum", {"color": "blue"}, timeout=600)
    expect(f"{name}: a value", cache.get("plum"), {"color": "blue"})
    expect(f"{name}: add of a present key", cache.add("plum", 1), False)
    cache.set("count", 1)
    expect(f"{name}: incr", [cache.incr("count"), cache.decr("count", 5)], [2, -3])
    cache.set_many({"a": 1, "b": 2})
    expect(f"{name}: get_many", cache.get_many(["a", "b", "c"]), {"a": 1, "b": 2})
    expect(f"{name}: touch", [cache.touch("a", 100), cache.touch("c", 100)], [True, False])
    expect(f"{name}: get_or_set", cache.get_or_set("c", lambda: 3), 3)
    cache.delete_many(["a", "b"])
    expect(f"{name}: deleted", cache.get("a"), None)
    cache.set("v", 1, version=2)
    expect(f"{name}: versions", [cache.get("v"), cache.get("v", version=2)], [None, 1])
    writer = multiprocessing.Process(target=write, args=(name,))
    writer.start()
    until("the other process has written", lambda: (cache.get("last") or 0) > 20)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    last = cache.get("last")
    expect(f"{name}: what was written before the kill", cache.get(f"a{last % 50}") in (last, last + 50), True)
    cache.clear()
    expect(f"{name}: cleared", cache.get("last"), None)


def main():
    import django
    from django.conf import settings

    native = "django.core.cache.backends.redis.RedisCache"
    settings.configure(
        CACHES={
            "default": {"BACKEND": native, "LOCATION": url(2)},
            "django-redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url(3)},
        },
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
    )
    django.setup()
    check_django("default")
    check_django("django-redis")
    plus = cache_of("django-redis")
    plus.set_many({f"fruit:{number}": number for number in range(25)})
    expect("delete_pattern", plus.delete_pattern("fruit:1*"), 11)
    expect("keys", len(plus.keys("fruit:*")), 14)
    plus.set("short", 1, timeout=500)
    expect("ttl", 400 < plus.ttl("short") <= 500, True)
    with plus.lock("a lock", timeout=60):
        expect("a second lock", plus.lock("a lock", timeout=60).acquire(blocking=False), False)
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["user"] = "anna"
    session.save()
    expect("a session", SessionStore(session.session_key)["user"], "anna")

    from flask import Flask
    from flask_caching import Cache

    app, calls = Flask("caches"), []
    cache = Cache(app, config={"CACHE_TYPE": "RedisCache", "CACHE_REDIS_URL": url(4), "CACHE_DEFAULT_TIMEOUT": 600})

    @cache.memoize()
    def double(number):
        calls.append(number)
        return number * 2

    with app.app_context():
        expect("memoized", [double(2), double(3), double(2)], [4, 6, 4])
        expect("calls", calls, [2, 3])
        cache.delete_memoized(double, 2)
        double(2)
        expect("calls after a deletion", calls, [2, 3, 2])
        cache.set_many({"x": 1, "y": 2})
        expect("get_many", cache.get_many("x", "y", "z"), [1, 2, None])
        expect("has", [cache.has("x"), cache.has("z")], [True, False])


if __name__ == "__main__":
    # Forked processes must not share connections.
    multiprocessing.set_start_method("fork")
    sys.exit(main())
