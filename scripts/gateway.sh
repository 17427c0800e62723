#!/usr/bin/env bash
# Compares gateways with redis-server on this machine, with redis-benchmark: SET and GET of 64-byte values, ranges, two gateways on one
# pool, and the memory of idle clients. One core for a server, one for its clients, loopback only. Only ratios within one run count.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/beside-redis.bash

keys=${KEYS:-100000}
requests=${REQUESTS:-300000}
index=${INDEX:-quiver}
port=${PORT:-7800}

needs redis-server redis-benchmark redis-cli
if [ "$(nproc)" -lt 2 ]; then
    echo "skipped: this needs two cores" >&2
    exit 0
fi
find_darter

directory=$(mktemp -d)
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$directory"
}
trap finish EXIT
pid=

# start CORE PORT COMMAND...: starts a server on a core and waits until it replies.
start() {
    local core=$1 at=$2
    shift 2
    taskset -c "$core" "$@" >"$directory/$at.log" 2>&1 &
    pid=$!
    started+=("$pid")
    for _ in $(seq 100); do
        redis-cli -p "$at" ping >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "$* did not start:" >&2
    cat "$directory/$at.log" >&2
    exit 1
}
stop() {
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
redis() { start "$1" "$2" redis-server --port "$2" --bind 127.0.0.1 --save '' --appendonly no; }
# gateway CORE PORT POOL [OPTION...]
gateway() { start "$1" "$2" "$darter" serve --resp "127.0.0.1:$2" --index "$index" --pool "${@:3}"; }

# rate CORE PORT PIPELINE COMMAND...: requests per second of 50 clients.
rate() {
    local core=$1 at=$2 pipeline=$3
    shift 3
    taskset -c "$core" redis-benchmark -p "$at" -n "$requests" -r "$keys" -d 64 -c 50 -P "$pipeline" --csv "$@" |
        sed -n 's/^"[^"]*","\([0-9.]*\)".*/\1/p' | tail -1
}
fill() { redis-benchmark -p "$1" -n $((keys * 5)) -r "$keys" -d 64 -c 50 -P 16 -t set --csv >/dev/null; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
thousands() { awk -v a="$1" 'BEGIN { printf "%.1f", a / 1e3 }'; }
resident() { awk '$1 == "Rss:" { print $2 }' "/proc/$1/smaps_rollup"; }

echo "index $index"
echo "50 clients, $keys keys, values of 64 bytes, thousand requests a second: medians of five turns each, and their ratio"
echo
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
declare -A of
redis 0 "$port"
of_redis=$pid
gateway 0 $((port + 1)) mem:1G
embedded=$pid
fill "$port"
fill $((port + 1))
# Alternating, since the speed of this machine varies.
for pipeline in 1 16; do
    for command in SET GET; do
        for _ in 1 2 3 4 5; do
            rate 1 "$port" "$pipeline" -t "${command,,}" >>"$directory/redis$command$pipeline"
            rate 1 $((port + 1)) "$pipeline" -t "${command,,}" >>"$directory/embedded$command$pipeline"
        done
        for name in redis embedded; do
            of[$name$command$pipeline]=$(median <"$directory/$name$command$pipeline")
        done
    done
done

echo "| | redis-server | gateway, embedded pool | |"
echo "|---|---|---|---|"
for pipeline in 1 16; do
    for command in SET GET; do
        a=${of[redis$command$pipeline]} b=${of[embedded$command$pipeline]}
        echo "| $command, pipeline of $pipeline | $(thousands "$a") | $(thousands "$b") | $(over "$b" "$a")× |"
    done
done

# A range of 100 pairs; on redis-server an index of the keys in addition, and MGET of the keys that it returns.
last=$((keys - 1))
awk -v last="$last" 'BEGIN { for (i = 0; i <= last; i++) printf "ZADD names 0 key:%012d\r\n", i }' |
    redis-cli -p "$port" --pipe >/dev/null
hundred=(MGET)
for _ in $(seq 100); do hundred+=(key:__rand_int__); done
requests=$((requests / 10))
by_lex=$(rate 1 "$port" 1 ZRANGEBYLEX names '[key:__rand_int__' + LIMIT 0 100)
by_mget=$(rate 1 "$port" 1 "${hundred[@]}")
ranges=$(rate 1 $((port + 1)) 1 RANGE '[key:__rand_int__' + LIMIT 100)
both=$(awk -v a="$by_lex" -v b="$by_mget" 'BEGIN { print 1 / (1 / a + 1 / b) }')
echo "| 100 values by ZRANGEBYLEX and MGET, by RANGE | $(thousands "$both") | $(thousands "$ranges") | $(over "$ranges" "$both")× |"
requests=$((requests * 10))
stop "$of_redis"
stop "$embedded"

echo
gateway 0 $((port + 5)) mem:64M
idle=$pid
redis-cli -p $((port + 5)) ping >/dev/null
before=$(resident "$idle")
clients=()
for _ in $(seq 1000); do
    exec {client}<>"/dev/tcp/127.0.0.1/$((port + 5))"
    printf 'PING\r\n' >&"$client"
    clients+=("$client")
done
for client in "${clients[@]}"; do read -r -u "$client" _; done
after=$(resident "$idle")
echo "1,000 idle clients: $(((after - before) * 1024 / 1000)) bytes each"
printf '*2\r\n$3\r\nGET\r\n$536870912\r\n' >&"${clients[0]}"
sleep 0.5
announced=$(resident "$idle")
echo "512 MiB announced and not sent: $((announced - after)) KiB"
for client in "${clients[@]}"; do exec {client}>&-; done
stop "$idle"

echo
# Each core has a gateway and its clients; then only one core has them.
pool="file:/dev/shm/darter-gateways-$$?size=1G"
gateway 0 $((port + 2)) "$pool"
first=$pid
fill $((port + 2))
one=$(rate 0 $((port + 2)) 16 -t get)
gateway 1 $((port + 3)) "file:/dev/shm/darter-gateways-$$"
second=$pid
rate 0 $((port + 2)) 16 -t get >"$directory/first" &
beside=$!
other=$(rate 1 $((port + 3)) 16 -t get)
wait "$beside"
two=$(awk -v a="$(cat "$directory/first")" -v b="$other" 'BEGIN { print a + b }')
echo "two gateways on one pool, each with its clients on its own core: $(thousands "$two") instead of $(thousands "$one"): $(over "$two" "$one")×"
stop "$second"
stop "$first"
rm -f "/dev/shm/darter-gateways-$$"*

echo
# Three memory nodes share the gateway's core, since there are only two cores.
nodes=()
urls=()
for number in 1 2 3; do
    coproc node { exec taskset -c 0 "$darter" memnode --listen 127.0.0.1:0 --size 512M 2>/dev/null; }
    nodes+=("$node_PID")
    started+=("$node_PID")
    read -r url <&"${node[0]}"
    urls+=("${url#tcp://}")
done 2>/dev/null
all="tcp://$(IFS=,; echo "${urls[*]}")"
"$darter" pool create --index "$index" --pool "$all" >/dev/null
requests=$((requests / 5))
gateway 0 $((port + 4)) "$all" --http $((port + 6))
over_tcp=$pid
fill $((port + 4))
# Clock ticks of 10 ms that processes have run on a processor.
ticks() { for pid in "$@"; do awk '{ print $14 + $15 }' "/proc/$pid/stat"; done | awk '{ all += $1 } END { print all }'; }
# Round trips of all kinds of operation so far, from the gateway's metrics, which lag a little behind.
trips() {
    sleep 2
    exec {metrics}<>"/dev/tcp/127.0.0.1/$((port + 6))"
    printf 'GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&"$metrics"
    awk '/^darter_gateway_round_trips_total/ { all += $2 } END { print all }' <&"$metrics"
    exec {metrics}>&-
}
echo "| over three TCP memory nodes on the gateway's core | thousand/s | | round trips a request | µs of the core a request: gateway | nodes |"
echo "|---|---|---|---|---|---|"
for pipeline in 1 16; do
    for command in SET GET; do
        before=("$(ticks "$over_tcp")" "$(ticks "${nodes[@]}")" "$(trips)")
        b=$(rate 1 $((port + 4)) "$pipeline" -t "${command,,}")
        after=("$(ticks "$over_tcp")" "$(ticks "${nodes[@]}")" "$(trips)")
        each() { awk -v a="${before[$1]}" -v b="${after[$1]}" -v by="$2" -v n="$requests" 'BEGIN { printf "%.1f", (b - a) * by / n }'; }
        ratio=$(over "$b" "${of[redis$command$pipeline]}")
        echo "| $command, pipeline of $pipeline | $(thousands "$b") | $ratio× redis-server | $(each 2 1) | $(each 0 10000) | $(each 1 10000) |"
    done
done
