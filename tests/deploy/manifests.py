"""Renderings: what a chart or a kustomization makes, as one set of documents that refer to each other."""

import fnmatch
import math
import pathlib
import re

import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
GATEWAY = "gateway"
FENCE = "sortie-fence"
CONFIG_FOLDER = "/etc/sortie"
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration):
    """A duration such as 500ms or 10s."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h|d)", str(duration)).groups()
    return math.ceil(int(number) * UNITS[unit])


def profile_timeouts():
    """How long a tool may take that says nothing itself, by shipped profile."""
    files = (REPOSITORY / "config/profiles").glob("*.yaml")
    profiles = [yaml.safe_load(file.read_text()) for file in files]
    return {profile["name"]: seconds(profile["timeout"]["default"]) for profile in profiles}


class Pod:
    """A pod's template, or a pod, in the document that has it."""

    def __init__(self, document, metadata, spec, rendering):
        self.document = document
        self.labels = metadata.get("labels") or {}
        self.spec = spec
        self.rendering = rendering
        self.namespace = namespace(document)

    def containers(self):
        """Each with the name of its list."""
        for field in ["initContainers", "containers"]:
            for container in self.spec.get(field) or []:
                yield field, container

    def ours(self, name=GATEWAY):
        """The container of this name, and its list."""
        found = [(field, one) for field, one in self.containers() if one["name"] == name]
        return found[0] if found else (None, None)

    def is_sidecar(self):
        return self.ours()[0] == "initContainers"

    def ports(self):
        """Names and numbers of all containers' ports."""
        return {value for _, one in self.containers() for value in port_values(one)}

    def config_sources(self):
        """What is mounted where the configuration is read, as in `volume_sources`."""
        _, gateway = self.ours()
        mounts = gateway.get("volumeMounts") or []
        mounted = [one["name"] for one in mounts if one["mountPath"].rstrip("/") == CONFIG_FOLDER]
        for volume in self.spec.get("volumes") or []:
            if volume["name"] in mounted:
                yield from volume_sources(volume)

    def config_files(self):
        """The texts of the gateway's configuration, by name: those of ConfigMaps that are here."""
        files = {}
        for kind, name, source in self.config_sources():
            document = self.rendering.find(kind, name, self.namespace) if kind == "ConfigMap" else None
            data = (document or {}).get("data") or {}
            items = source.get("items") or [{"key": key, "path": key} for key in data]
            files |= {item["path"]: data[item["key"]] for item in items if item["key"] in data}
        return files

    def config(self):
        """The gateway's configuration with its included files' tools and profiles; none where it is not here."""
        files = self.config_files()
        if "sortie.yaml" not in files:
            return None
        config = yaml.safe_load(files["sortie.yaml"])
        lists = {key: list(config.get(key) or []) for key in ["tools", "profiles"]}
        for name, text in files.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in config.get("include") or []):
                for key, values in lists.items():
                    values.extend(yaml.safe_load(text).get(key) or [])
        return {**config, **lists}


def volume_sources(volume):
    """The ConfigMaps and Secrets that a volume has: kind, name, and the source itself."""
    for source in [volume, *volume.get("projected", {}).get("sources", [])]:
        for key, kind in [("configMap", "ConfigMap"), ("secret", "Secret")]:
            if key in source:
                yield kind, source[key].get("secretName") or source[key].get("name"), source[key]


def port_values(container):
    for port in container.get("ports") or []:
        yield port["containerPort"]
        if "name" in port:
            yield port["name"]


def namespace(document):
    return document["metadata"].get("namespace", "")


def selected(selector, labels):
    """Whether a label selector takes these labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions") or []:
        key, values = one["key"], one.get("values") or []
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds[one["operator"]]:
            return False
    return True


class Rendering:
    """All documents of one rendering."""

    def __init__(self, documents):
        self.documents = [one for one in documents if one]

    @classmethod
    def read(cls, path):
        return cls(yaml.safe_load_all(pathlib.Path(path).read_text()))

    def of(self, *kinds):
        return [one for one in self.documents if one["kind"] in kinds]

    def find(self, kind, name, within):
        for one in self.of(kind):
            if one["metadata"]["name"] == name and namespace(one) == within:
                return one
        return None

    def pods(self):
        for document in self.documents:
            spec = document.get("spec") or {}
            if document["kind"] == "CronJob":
                spec = spec["jobTemplate"]["spec"]
            if document["kind"] == "Pod":
                yield Pod(document, document["metadata"], spec, self)
            elif "template" in spec and "spec" in spec["template"]:
                yield Pod(document, spec["template"].get("metadata") or {}, spec["template"]["spec"], self)

    def pods_of(self, document, selector):
        """The pods in the document's namespace that a label selector takes."""
        return [pod for pod in self.pods() if pod.namespace == namespace(document) and selected(selector, pod.labels)]
