"""Debian packages: `darter`, the program with its units, manual pages and completions, and `libdarter-dev`, the C library."""

import gzip
import hashlib
import os
import re
import shutil
import subprocess

from pages import ROOT
from release_root import commit_time, empty, run, try_program

ARCHITECTURE = "amd64"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MAINTAINER = "The darter developers <darter@localhost>"

# Units are not enabled: they need settings and secrets first. DPKG_ROOT is set when another root is changed.
SCRIPTS = {
    "postinst": 'if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi',
    "prerm": 'if [ "$1" = remove ] && [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then\n'
    "    systemctl disable --now darter-memnode darter-replica darter-gateway || true\nfi",
    "postrm": 'if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi',
}

COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: darter

Files: *
Copyright: the darter developers
License: MIT or Apache-2.0
Comment: the crates that the programs contain are listed, with their licenses, in /usr/share/doc/darter/sbom.cdx.json.

License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.

License: MIT
"""


def put(source, there, mode=0o644):
    there.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, there)
    there.chmod(mode)


def put_compressed(data, there):
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(gzip.compress(data, mtime=0))


def dependencies(binary):
    """Debian's dependencies of a binary: the system libraries that it names, in the newest version of its symbols."""
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", run(["readelf", "--version-info", "--wide", binary]))
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    found = [f"libc6 (>= {major}.{minor})"]
    known = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    for name in re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "--dynamic", "--wide", binary])):
        if name == "libgcc_s.so.1":
            found.append("libgcc-s1 (>= 4.2)")
        elif name not in known:
            raise SystemExit(f"{binary} needs {name}, which has no package here")
    return ", ".join(found)


def conclude(tree, name, version, fields, description, scripts, artifacts, compression):
    """Adds the control files to a tree and makes the package of it."""
    doc = tree / "usr/share/doc" / name
    mit = "".join(f" {line or '.'}\n" for line in (ROOT / "LICENSE-MIT").read_text().splitlines())
    doc.mkdir(parents=True, exist_ok=True)
    (doc / "copyright").write_text(COPYRIGHT + mit)
    put_compressed((ROOT / "CHANGELOG.md").read_bytes(), doc / "changelog.gz")
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files]
    kilobytes = sum(path.stat().st_size for path in files) // 1024
    control = {
        "Package": name,
        "Version": version,
        "Architecture": ARCHITECTURE,
        "Maintainer": MAINTAINER,
        "Installed-Size": kilobytes,
        "Section": "database" if name == "darter" else "libdevel",
        "Priority": "optional",
        **fields,
        "Description": description,
    }
    folder = tree / "DEBIAN"
    folder.mkdir()
    (folder / "control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
    (folder / "md5sums").write_text("".join(sums))
    settings = sorted(path for path in files if path.is_relative_to(tree / "etc"))
    if settings:
        (folder / "conffiles").write_text("".join(f"/{path.relative_to(tree)}\n" for path in settings))
    for script, text in scripts.items():
        (folder / script).write_text(f"#!/bin/sh\nset -e\n{text}\n")
        (folder / script).chmod(0o755)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    package = artifacts / f"{name}_{version}_{ARCHITECTURE}.deb"
    run(["dpkg-deb", "--root-owner-group", *compression, "--build", tree, package], env=environment)
    return package


def program_package(work, built, version, artifacts, compression):
    """Makes the package `darter` from the built files of a release."""
    tree = empty(work / "darter")
    put(built / "bin/darter", tree / "usr/bin/darter", 0o755)
    for unit in sorted((built / "share/darter/deploy").glob("*.service")):
        there = tree / "usr/lib/systemd/system" / unit.name
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(unit.read_text().replace("/usr/local/bin/darter ", "/usr/bin/darter "))
    for service in ["memnode", "gateway"]:
        put(ROOT / f"deploy/darter-{service}.env", tree / f"etc/darter/{service}.env")
    for page in sorted((built / "share/man/man1").iterdir()):
        put_compressed(page.read_bytes(), tree / f"usr/share/man/man1/{page.name}.gz")
    completions = built / "share/darter/completions"
    put(completions / "darter.bash", tree / "usr/share/bash-completion/completions/darter")
    put(completions / "_darter", tree / "usr/share/zsh/vendor-completions/_darter")
    put(completions / "darter.fish", tree / "usr/share/fish/vendor_completions.d/darter.fish")
    put(built / "share/darter/sbom.cdx.json", tree / "usr/share/doc/darter/sbom.cdx.json")
    description = (
        "ordered key-value map that several processes write at the same time\n"
        " The map is in a shared file, in shared memory, or on memory nodes across a network.\n"
        " Any process can be killed at any instant without losing an acknowledged write.\n"
        " This package has the program: clients, memory nodes, and gateways for Redis clients."
    )
    # The units reload by /bin/kill.
    fields = {"Depends": dependencies(built / "bin/darter"), "Recommends": "procps"}
    return conclude(tree, "darter", version, fields, description, SCRIPTS, artifacts, compression)


def library_package(work, built, version, artifacts, compression):
    """Makes the package `libdarter-dev` from the built files of a release."""
    tree = empty(work / "libdarter-dev")
    put(built / "include/darter.h", tree / "usr/include/darter.h")
    for path in sorted((built / "lib").iterdir()):
        there = tree / LIBRARIES / path.name
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            there.symlink_to(os.readlink(path))
        elif path.is_file():
            put(path, there)
    pc = (built / "lib/pkgconfig/darter.pc").read_text()
    pc = re.sub(r"^prefix=.*$", "prefix=/usr", pc, flags=re.M).replace("${prefix}/lib", f"/{LIBRARIES}")
    (tree / LIBRARIES / "pkgconfig").mkdir()
    (tree / LIBRARIES / "pkgconfig/darter.pc").write_text(pc)
    description = (
        "C library of darter, an ordered key-value map for several processes\n"
        " The static and the shared library, and the header darter.h."
    )
    fields = {"Depends": dependencies(built / "lib/libdarter.so")}
    return conclude(tree, "libdarter-dev", version, fields, description, {}, artifacts, compression)


def install(root, packages):
    """Installs packages into a root in which their dependencies are listed as this system has them."""
    database = root / "var/lib/dpkg"
    for folder in ["info", "updates"]:
        (database / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/log").mkdir(parents=True, exist_ok=True)
    (database / "status").write_text("\n".join(run(["dpkg-query", "--status", name]) for name in ["libc6", "libgcc-s1"]))
    run([*dpkg(root), "--install", *packages])


def dpkg(root):
    # The root has no shell for the packages' scripts, which find the root in DPKG_ROOT.
    return ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-not-root"]


def files_of(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink()}


def check(root, packages, c_check):
    """Installs the packages, uses them, and removes them. Returns what was done."""
    install(root, packages)
    installed = files_of(root)
    for expected in ["usr/bin/darter", "usr/share/man/man1/darter.1.gz", "usr/include/darter.h", "etc/darter/memnode.env"]:
        if expected not in installed:
            raise SystemExit(f"{expected} is not in the packages")
    try_program(root, "/usr/bin/darter")
    c_check(root / LIBRARIES, root / "usr/include")
    units = sorted((root / "usr/lib/systemd/system").glob("*.service"))
    verified = verify_units(root, units)
    run([*dpkg(root), "--remove", "darter", "libdarter-dev"])
    left = files_of(root) & {path for path in installed if path.startswith(("usr/bin", "usr/include", "usr/share", LIBRARIES))}
    if left or "etc/darter/memnode.env" not in files_of(root):
        raise SystemExit(f"after removal: {sorted(left) or 'the settings are gone'}")
    run([*dpkg(root), "--purge", "darter"])
    if (root / "etc/darter").exists():
        raise SystemExit("settings are left after a purge")
    return f"installed, used, removed, purged; {verified}"


# The largest exposure, of 100, that `systemd-analyze security` may find in a unit: 1.3, which is what serving a network takes.
EXPOSURE = 13


def verify_units(root, units):
    """Checks the units with systemd, if it is here. The targets that they name are not in the root, and /bin/kill only now."""
    if not units or not shutil.which("systemd-analyze"):
        return "units not checked: no systemd-analyze"
    kill = root / "bin/kill"
    kill.parent.mkdir(exist_ok=True)
    kill.touch(0o755)
    for command in (
        ["systemd-analyze", f"--root={root}", "--recursive-errors=no", "verify", *map(str, units)],
        ["systemd-analyze", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", "security", *map(str, units)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return f"{len(units)} units verified, each exposed by at most {EXPOSURE / 10}"
