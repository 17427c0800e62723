"""Typical calls of redis-py against a gateway: over RESP2, and over RESP3 if the library supports it (5 and later)."""
import sys

import redis


def use(port, transactions, **options):
    client = redis.Redis(port=port, **options)
    client.flushall()
    assert client.ping()
    assert client.set("a", "1", ex=1000) and 990 < client.ttl("a") <= 1000
    assert client.set("a", "2", nx=True) is None and client.set("a", "2", xx=True, keepttl=True)
    assert client.set("a", "3", get=True) == b"2" and client.get("a") == b"3"
    assert client.getex("a", persist=True) == b"3" and client.ttl("a") == -1
    assert client.incr("n", 5) == 5 and client.decr("n") == 4 and client.incrbyfloat("f", 1.5) == 1.5
    assert client.mset({"x": "1", "y": "2"}) and client.mget("x", "none", "y") == [b"1", None, b"2"]
    assert client.append("x", "23") == 3 and client.getrange("x", 0, -2) == b"12" and client.setrange("x", 1, "zz") == 3
    assert client.exists("x", "y", "none") == 2 and client.type("x") in (b"string", "string")
    assert client.pexpireat("x", 4_000_000_000_000) and client.persist("x") and client.delete("x", "y") == 2
    if transactions:
        pipe = client.pipeline()
        pipe.watch("a")
        pipe.multi()
        pipe.set("a", "4").get("a").incr("n")
        assert pipe.execute() == [True, b"4", 5] and client.decr("n") == 4
    pipe = client.pipeline(transaction=False)
    for number in range(3000):
        pipe.set(f"many:{number:04}", "v" * 100)
    assert all(pipe.execute())
    assert len(set(client.scan_iter(match="many:*", count=100))) == 3000
    assert client.dbsize() == 3003 and len(client.keys("many:00*")) == 100
    told = client.execute_command("RANGE", "[many:0001", "(many:0003", "KEYSONLY")
    assert told == [b"many:0001", b"many:0002"], told
    assert client.client_setname("me") and client.client_getname() in (b"me", "me") and client.client_id() > 0
    assert any(other["name"] == "me" for other in client.client_list())
    assert client.info("memory")["used_memory"] > 1_000_000 and client.info("clients")["connected_clients"] > 0
    assert client.info("server")["redis_mode"] == "standalone" and "maxclients" in client.config_get("max*")
    assert client.command_count() > 40 and client.echo("text") == b"text"
    assert client.hset("h", mapping={"a": "1", "b": "2"}) == 2 and client.hgetall("h") == {b"a": b"1", b"b": b"2"}
    assert client.hmget("h", "a", "none") == [b"1", None] and client.hincrby("h", "a", 4) == 5
    assert dict(client.hscan_iter("h", count=1)) == {b"a": b"5", b"b": b"2"} and client.hdel("h", "a", "b") == 2
    assert client.zadd("z", {"one": 1, "two": 2.5}) == 2 and client.zincrby("z", 2, "one") == 3.0
    ranged = client.zrange("z", 0, -1, withscores=True)
    assert [tuple(pair) for pair in ranged] == [(b"two", 2.5), (b"one", 3.0)], ranged
    assert client.zrangebyscore("z", "(2.5", "+inf", start=0, num=10) == [b"one"] and client.zscore("z", "none") is None
    assert client.zrank("z", "one") == 1 and client.zpopmin("z", 5) and not client.exists("z", "h")
    try:
        client.incr("many:0001")
        raise AssertionError("a word was counted up")
    except redis.ResponseError as error:
        assert "not an integer" in str(error)
    large = b"\0\r\n" * 300_000
    assert client.set("large", large) and client.get("large") == large
    assert client.flushall() and client.randomkey() is None


port, transactions = int(sys.argv[1]), sys.argv[2] == "transactions"
if int(redis.__version__.split(".")[0]) >= 5:
    for protocol in 2, 3:
        use(port, transactions, protocol=protocol)
        print(f"RESP{protocol}: all well")
else:
    use(port, transactions)
    print("RESP2: all well")
