"""The software bill of materials of a package: CycloneDX 1.5, from cargo's metadata and lock file."""

import json
import tomllib
import uuid

from pages import ROOT
from release_root import run

TARGET = "x86_64-unknown-linux-gnu"


def metadata():
    return json.loads(run(["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET], cwd=ROOT))


def compiled_in(roots):
    """The names and versions of all crates whose code, or whose output at build time, is in a package."""
    selected = [word for name in sorted(roots) for word in ("--package", name)]
    command = ["cargo", "tree", "--locked", "--target", TARGET, "--edges", "normal,build", "--prefix", "none", *selected]
    lines = run([*command, "--format", "{p}"], cwd=ROOT).splitlines()
    return {(line.split()[0], line.split()[1].removeprefix("v")) for line in lines if line}


def component(package, checksums):
    name, version = package["name"], package["version"]
    described = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "description": package["description"] or "",
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package["license"]:
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in checksums:
        described["hashes"] = [{"alg": "SHA-256", "content": checksums[name, version]}]
    return described


def sbom(roots, version):
    """Returns the bill of materials of the crates `roots`, and the number of its components."""
    graph = metadata()
    packages = {package["id"]: package for package in graph["packages"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock if "checksum" in one}
    own = [id for id, package in packages.items() if package["name"] in roots]
    used = compiled_in(roots)
    ids = {id for id, package in packages.items() if (package["name"], package["version"]) in used}
    references = {id: component(packages[id], checksums)["bom-ref"] for id in ids}
    depends = []
    for node in graph["resolve"]["nodes"]:
        if node["id"] in ids:
            on = sorted(references[one] for one in node["dependencies"] if one in ids)
            depends.append({"ref": references[node["id"]], "dependsOn": on})
    components = sorted((component(packages[id], checksums) for id in ids), key=lambda one: one["bom-ref"])
    unlicensed = [one["name"] for one in components if "licenses" not in one]
    if unlicensed:
        raise SystemExit(f"no license in the metadata of {', '.join(unlicensed)}")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "darter", "name": "darter", "version": version}},
        "components": components,
        "dependencies": [{"ref": "darter", "dependsOn": sorted(references[id] for id in own)}]
        + sorted(depends, key=lambda one: one["ref"]),
    }
    return document, len(components)
