#!/usr/bin/env python3
"""Writes what the binary is made of, as CycloneDX 1.6 in JSON, to standard output.

The crates are those of Cargo.lock that the binary has for one target, and those that only build it (`excluded`).
The same lock file makes the same text: there is no time and no random number in it.

Usage: deploy/release/sbom.py [TARGET]
"""

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def metadata(target):
    """What cargo knows of the tree for this target."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def host():
    """The target of this machine."""
    told = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.search(r"^host: (\S+)$", told, re.MULTILINE).group(1)


def checksums():
    """SHA-256 of each crate's package, by name and version."""
    entry = r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"'
    found = re.findall(entry, (ROOT / "Cargo.lock").read_text())
    return {(name, version): checksum for name, version, checksum in found}


def reach(nodes, root):
    """The ids that are reached from the root by normal dependencies, and those by any that is not for tests alone."""

    def walk(kinds):
        seen, open_ = {root}, [root]
        while open_:
            for dependency in nodes[open_.pop()]["deps"]:
                kind = {kind["kind"] for kind in dependency["dep_kinds"]}
                if kind & kinds and dependency["pkg"] not in seen:
                    seen.add(dependency["pkg"])
                    open_.append(dependency["pkg"])
        return seen

    # A procedural macro runs in the compiler, but what it writes is in the binary: it counts as part of it.
    return walk({None}), walk({None, "build"})


def reference(package):
    """The crate's package URL, which is its name in this document too."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, kind, checksum=None, scope=None):
    """One entry."""
    entry = {
        "type": kind,
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["description"]:
        entry["description"] = " ".join(package["description"].split())
    if scope:
        entry["scope"] = scope
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["license"]:
        # Old manifests have a slash for "or".
        entry["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def document(target):
    """The whole of it."""
    tree = metadata(target)
    packages = {package["id"]: package for package in tree["packages"]}
    nodes = {node["id"]: node for node in tree["resolve"]["nodes"]}
    root = tree["resolve"]["root"]
    shipped, all_ = reach(nodes, root)
    known = checksums()
    components, dependencies = [], []
    for id_ in sorted(all_, key=lambda id_: reference(packages[id_])):
        package = packages[id_]
        after = {dependency["pkg"] for dependency in nodes[id_]["deps"]} & all_
        after = sorted(reference(packages[other]) for other in after)
        dependencies.append({"ref": reference(package), "dependsOn": after})
        if id_ != root:
            checksum = known[package["name"], package["version"]]
            scope = "required" if id_ in shipped else "excluded"
            components.append(component(package, "library", checksum, scope))
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": component(packages[root], "application"),
            "properties": [{"name": "cargo:target", "value": target}],
        },
        "components": components,
        "dependencies": dependencies,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "serialNumber": f"urn:uuid:{serial}", **body}


if __name__ == "__main__":
    json.dump(document(sys.argv[1] if len(sys.argv) > 1 else host()), sys.stdout, indent=2)
    print()
