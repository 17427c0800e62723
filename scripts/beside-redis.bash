# The common beginning of scripts that compare with redis-server: source it from the project's folder.
#
# needs TOOL...: ends the script with a clear message if a tool is missing. find_darter: sets `darter` to $DARTER, or to a release
# build made now.

needs() {
    for tool in "$@"; do
        if ! command -v "$tool" >/dev/null; then
            echo "skipped: $tool is not installed (Debian: apt-get install redis-server redis-tools)" >&2
            exit 0
        fi
    done
}

find_darter() {
    darter=${DARTER:-}
    if [ -z "$darter" ]; then
        cargo build --release --quiet --package darter-cli
        darter=${CARGO_TARGET_DIR:-target}/release/darter
    fi
}
