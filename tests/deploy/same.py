#!/usr/bin/env python3
"""Compares what Helm renders with what kustomize makes: the same objects, but for what only one of the two has.

    same.py [--but KIND/NAME]... HELM KUSTOMIZE

Labels and the digest that only Helm writes, namespaces, and the generated part of ConfigMaps' names do not count. `--but`
is an object that only kustomize has. What differs is printed, and the exit is then 1.
"""

import argparse
import copy
import pathlib
import re
import sys

import yaml

HELM_ONLY = {"helm.sh/chart", "app.kubernetes.io/managed-by", "checksum/config"}
# A release's name in Helm.
NAMED_BY_RELEASE = {"sortie/sidecar"}
GENERATED = re.compile(r"^(.*)-[0-9a-z]{10}$")


def plain(value):
    """Without what does not count."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, inner in value.items():
        if key in HELM_ONLY or (key == "metadata" and not inner):
            continue
        inner = "any" if key in NAMED_BY_RELEASE else plain(inner)
        if key == "configMap" and "name" in inner:
            inner["name"] = ungenerated(inner["name"])
        if key in ["labels", "annotations"] and not inner:
            continue
        made[key] = inner
    return made


def ungenerated(name):
    found = GENERATED.match(name)
    return found[1] if found else name


def objects(documents):
    found = {}
    for document in documents:
        if document:
            document = plain(copy.deepcopy(document))
            document["metadata"].pop("namespace", None)
            if document["kind"] == "ConfigMap":
                document["metadata"] = {"name": ungenerated(document["metadata"]["name"])}
                document["data"] = {key: text.rstrip("\n") for key, text in document["data"].items()}
            found[f"{document['kind']}/{document['metadata']['name']}"] = document
    return found


def paths(helm, kustomize, path=""):
    """Where two values differ."""
    if isinstance(helm, dict) and isinstance(kustomize, dict):
        for key in sorted(helm.keys() | kustomize.keys()):
            yield from paths(helm.get(key), kustomize.get(key), f"{path}.{key}")
    elif isinstance(helm, list) and isinstance(kustomize, list) and len(helm) == len(kustomize):
        for index, (one, other) in enumerate(zip(helm, kustomize)):
            yield from paths(one, other, f"{path}[{index}]")
    elif helm != kustomize:
        yield f"{path}: Helm has {helm!r}, kustomize {kustomize!r}"


def differences(helm, kustomize, but=()):
    helm, kustomize = objects(helm), objects(kustomize)
    for name in sorted(helm.keys() | kustomize.keys()):
        if name not in kustomize:
            yield f"{name}: kustomize has none"
        elif name in helm:
            yield from paths(helm[name], kustomize[name], name)
        elif name not in but:
            yield f"{name}: Helm has none"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--but", action="append", default=[], metavar="KIND/NAME")
    parser.add_argument("helm", type=pathlib.Path)
    parser.add_argument("kustomize", type=pathlib.Path)
    arguments = parser.parse_args()
    both = [list(yaml.safe_load_all(path.read_text())) for path in [arguments.helm, arguments.kustomize]]
    found = list(differences(*both, but=arguments.but))
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
