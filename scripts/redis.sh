#!/usr/bin/env bash
# Compares DART with redis-server on this machine: SET and GET of 64-byte values with equally many operations in flight, and the
# same index in one process. One core for the server, one for the client, loopback only. Only ratios within one run count.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/beside-redis.bash

records=${RECORDS:-200000}
pipeline=16
clients=4
in_flight=$((pipeline * clients))
port=${PORT:-7790}

needs redis-server redis-benchmark redis-cli
find_darter

server=(taskset -c 0)
client=(taskset -c 1)
if [ "$(nproc)" -lt 2 ]; then
    echo "note: there is one core, which server and client share: the ratios do not mean much" >&2
    server=() client=()
fi
started=()
trap 'for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done' EXIT

"${server[@]}" redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no >/dev/null &
started+=($!)
until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.1; done
redis=$("${client[@]}" redis-benchmark -p "$port" -t set,get -n "$records" -r "$records" -d 64 -c "$clients" -P "$pipeline" --csv)
kill "${started[0]}"
started=()

# Operations per second of a workload, from one JSON object per line.
rate() { sed -n "s/.*\"workload\":\"$2\".*\"ops_per_s\":\([0-9.]*\).*/\1/p" <<<"$1"; }
run=(bench --records "$records" --ops "$records" --workload load,c --cache 1M --json)

coproc node { exec "${server[@]}" "$darter" memnode --listen 127.0.0.1:0 --size 1G 2>/dev/null; }
started+=("$node_PID")
read -r pool <&"${node[0]}"
over_tcp=$("${client[@]}" "$darter" "${run[@]}" --in-flight "$in_flight" --pool "$pool" --create)
in_process=$("${client[@]}" "$darter" "${run[@]}")

of_redis() { sed -n "s/^\"$1\",\"\([0-9.]*\)\".*/\1/p" <<<"$redis"; }
row() {
    awk -v name="$1" -v redis="$2" -v tcp="$3" -v local="$4" 'BEGIN {
        printf "| %s | %.0f | %.0f (%.2f×) | %.0f (%.2f×) |\n", name, redis / 1e3, tcp / 1e3, tcp / redis, local / 1e3, local / redis
    }'
}
echo "| thousand a second, $in_flight in flight | redis-server | darter over one memory node | darter in one process, one at a time |"
echo "|---|---|---|---|"
row "SET, insert" "$(of_redis SET)" "$(rate "$over_tcp" load)" "$(rate "$in_process" load)"
row "GET, search" "$(of_redis GET)" "$(rate "$over_tcp" c)" "$(rate "$in_process" c)"
