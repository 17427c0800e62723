"""The container image: built from deploy/Containerfile and run, without an installed engine and without a registry of images.
podman is in a root of Debian packages, and the images that the Containerfile begins with are made of Debian packages too."""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from pages import ROOT
from release_root import PATH, empty, may_mount, run

# The image's user.
USER = 65532
START_SECONDS_MAX = 600
PODMAN = ["base-files", "coreutils", "crun", "dash", "findutils", "mount", "netavark", "podman"]
# A gateway of a memory node in the same network.
POOL = "tcp://127.0.0.1:7000"
GATEWAY = f"serve --resp 0.0.0.0:6379 --http 0.0.0.0:9701 --pool {POOL} --token-file /run/token --password-file /run/password"
# Stores and reads a key as clients of Redis do, and reads whether both services are well.
CLIENT = """
import socket, sys, urllib.request
connection = socket.create_connection(("127.0.0.1", 6379), 60)
lines = connection.makefile("rwb")
commands = [["AUTH", sys.argv[1]], *([["SET", "pear", "green"]] if "set" in sys.argv else []), ["GET", "pear"]]
for words in commands:
    lines.write(b"*%d\\r\\n" % len(words) + b"".join(b"$%d\\r\\n%s\\r\\n" % (len(word), word.encode()) for word in words))
lines.flush()
print(*(lines.readline().decode().strip() for _ in range(len(commands) + 1)))
for port in (9700, 9701):
    print(port, urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60).status)
"""
ANSWERS = "$5 green\n9700 200\n9701 200\n"


def why_not():
    """Returns why no image can be made here without an installed engine; `None` if it can."""
    if not may_mount():
        return "no permission to mount"
    return None if shutil.which("mmdebstrap") else "no mmdebstrap"


def bases():
    """Returns the names of the images that the Containerfile begins with: of the build, and of the result."""
    names = re.findall(r"^FROM (\S+)", (ROOT / "deploy/Containerfile").read_text(), re.M)
    build, result = names
    if not build.endswith("-slim-bookworm") or not result.endswith("debian:bookworm-slim"):
        raise SystemExit(f"deploy/Containerfile begins with {names}, not with images of Debian bookworm")
    return build, result


def debian(suite, there, variant, packages):
    command = ["mmdebstrap", "--quiet", f"--variant={variant}", "--aptopt=Acquire::Check-Valid-Until \"false\""]
    run([*command, *([f"--include={','.join(packages)}"] if packages else []), suite, there, "http://deb.debian.org/debian"])
    return there


class Engine:
    """podman in a separate root, in a mount namespace that ends with this object. The system's files are not changed."""

    def __init__(self, work, mounts):
        root = debian("trixie", work / "engine", "extract", PODMAN)
        for name in ["bin", "sbin", "lib", "lib64"]:
            if not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\n")
        for name in ["dev", "proc", "sys", "run", "tmp", "old", "var/tmp", "var/lib/containers", *mounts.values()]:
            (root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
        steps = [
            f"mount --bind {root} {root}",
            f"cd {root}",
            "mount --rbind /dev dev",
            "mount -t tmpfs tmpfs dev/shm",
            "mount -t proc proc proc",
            "mount --rbind /sys sys",
            # crun refuses a system that has both versions of cgroups.
            "mount -t cgroup2 cgroup2 sys/fs/cgroup",
            "mount -t tmpfs tmpfs run",
            *(f"mount -o bind,ro {source} .{there}" for source, there in mounts.items()),
            "pivot_root . old",
            "umount -l /old",
            "echo ready",
            "exec sleep infinity",
        ]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", " && ".join(steps)]
        self.holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": PATH})
        if self.holder.stdout.readline() != "ready\n":
            raise SystemExit("the root of podman cannot be mounted: see the message above")

    def __call__(self, *words):
        return run([*self.command(), *words])

    def inside(self):
        return ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", "env", "-i", f"PATH={PATH}", "HOME=/root"]

    def command(self):
        return [*self.inside(), "podman", "--cgroup-manager", "cgroupfs"]

    def close(self):
        subprocess.run([*self.command(), "rm", "--all", "--force", "--time", "0"], capture_output=True)
        # The empty groups that podman leaves, in the system's hierarchy.
        groups = ["find", "/sys/fs/cgroup/libpod_parent", "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"]
        subprocess.run([*self.inside(), *groups], capture_output=True)
        self.holder.kill()
        self.holder.wait()


def limits():
    """The limits of a build: podman's are above those of this system, which it may not raise."""
    pairs = [("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)]
    found = [(name, resource.getrlimit(limit)[1]) for name, limit in pairs]
    return [f"--ulimit={name}={most}:{most}" for name, most in found if most != resource.RLIM_INFINITY]


def check(work, program=None):
    """Builds the image and runs it: a memory node and a gateway. Compiles darter in it, or takes this program."""
    files = empty(work / "files")
    shared = {str(ROOT): "/src", str(files): "/files"}
    build, result = bases()
    debian("bookworm", files / "result.tar", "minbase", [])
    if program:
        shutil.copy(program, files / "darter")
        # Stands for cargo in the image's build.
        (files / "cargo").write_text('#!/bin/sh\n[ "$1" = build ] && exec install -D /files/darter target/dist/darter\nexit 1\n')
        (files / "cargo").chmod(0o755)
        rust, volumes, changes = "result.tar", ["/files:/files:ro", "/files/cargo:/usr/local/bin/cargo:ro"], []
    else:
        debian("bookworm", files / "build.tar", "minbase", ["gcc", "libc6-dev"])
        home = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
        shared |= {run(["rustc", "--print", "sysroot"]).strip(): "/rust", f"{home}/registry": "/registry"}
        run(["cargo", "fetch", "--locked"], cwd=ROOT)
        rust, volumes = "build.tar", ["/rust:/usr/local/rust:ro", "/registry:/usr/local/cargo/registry:ro"]
        changes = [f"ENV PATH=/usr/local/rust/bin:{PATH}", "ENV CARGO_HOME=/usr/local/cargo", "ENV CARGO_NET_OFFLINE=true"]
    podman = Engine(work, shared)
    try:
        podman("import", "/files/result.tar", result)
        podman("import", *(word for change in changes for word in ("--change", change)), f"/files/{rust}", build)
        volumes = [word for volume in volumes for word in ("--volume", volume)]
        # A build needs no further namespaces.
        options = ["--isolation", "chroot", "--network", "host", "--pull=never", *limits(), *volumes]
        podman("build", *options, "--tag", "darter", "--file", "/src/deploy/Containerfile", "/src")
        use(podman, files)
    finally:
        podman.close()
    return "built by podman" + (" from a given program" if program else "") + "; memory node and gateway run, read-only, no root"


def expect(found, expected, what):
    if found != expected:
        raise SystemExit(f"{what}: {found!r}, not {expected!r}")


def started(podman, name, *words):
    """Runs the image in the background, as a user who is not root, with a root that cannot be written. Waits until it listens."""
    # Not all systems have the controller `pids`.
    podman("run", "--detach", "--name", name, "--read-only", "--pids-limit", "0", *words)
    listens(podman, name)


def listens(podman, name):
    end = time.monotonic() + START_SECONDS_MAX
    while True:
        log = run_both([*podman.command(), "logs", name])
        state = podman("inspect", "--format", "{{.State.Status}}", name).strip()
        if log.count('"listening"') and state == "running":
            return
        if state != "running" or time.monotonic() > end:
            raise SystemExit(f"the container `{name}` is {state}, and does not listen:\n{log}")
        time.sleep(0.2)


def run_both(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def use(podman, files):
    """Runs a memory node and a gateway, uses them, and starts the memory node again on the same volume."""
    for name in ["token", "password"]:
        (files / name).write_text(os.urandom(24).hex())
        os.chown(files / name, USER, USER)
        (files / name).chmod(0o400)
    start_both(podman, is_new=True)
    expect(ask(podman, files, "set"), f"+OK +OK {ANSWERS}", "the gateway and the memory node answered")
    for name in ["memory", "gateway"]:
        expect(podman("exec", name, "id", "-u").strip(), str(USER), f"the user of `{name}`")
        written = run_both([*podman.command(), "exec", name, "touch", "/file"])
        if "Read-only file system" not in written:
            raise SystemExit(f"the root of `{name}` can be written: {written}")
    for name in ["gateway", "memory"]:
        podman("stop", "--time", str(START_SECONDS_MAX), name)
        expect(podman("inspect", "--format", "{{.State.ExitCode}}", name).strip(), "0", f"the exit code of `{name}` after SIGTERM")
        podman("rm", name)
    start_both(podman)
    expect(ask(podman, files), f"+OK {ANSWERS}", "after a restart, the gateway and the memory node answered")


def start_both(podman, is_new=False):
    """Starts a memory node on a volume, and a gateway in its network."""
    token = ["--volume", "/files/token:/run/token:ro"]
    started(podman, "memory", "--network", "none", "--volume", "darter:/data", *token, "darter")
    if is_new:
        podman("exec", "memory", "/usr/local/bin/darter", "pool", "create", "--pool", POOL, "--token-file", "/run/token")
    password = ["--volume", "/files/password:/run/password:ro"]
    words = [*GATEWAY.split(), "--log-format", "json"]
    started(podman, "gateway", "--network", "container:memory", *token, *password, "darter", *words)


def ask(podman, files, *words):
    """Runs the client by this program's Python, in the containers' network."""
    pid = podman("inspect", "--format", "{{.State.Pid}}", "memory").strip()
    python = [sys.executable, "-c", CLIENT, (files / "password").read_text(), *words]
    return run(["nsenter", f"--net=/proc/{pid}/ns/net", *python])
