#!/usr/bin/env python3
"""Writes what is made of the Helm charts: deploy/kustomize, deploy/admission, and the charts' copies of monitoring files.

    python3 deploy/kustomize/render.py [--helm HELM] [--check]

The charts in deploy/helm are the one source. `--check` writes nothing, and exits 1 where something is not as it would be
written. It needs PyYAML and Helm, and no cluster.
"""

import argparse
import copy
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
HEADER = "# Made by deploy/kustomize/render.py of the chart in deploy/helm: change it there.\n"
# What a chart carries of deploy/monitoring.
COPIES = ["rules.yaml", "dashboard.json"]
# Of Helm alone.
HELM_LABELS = ["helm.sh/chart", "app.kubernetes.io/managed-by"]
OURS = ["sortie-fence", "gateway"]


class Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and lists below their key."""

    def increase_indent(self, flow=False, indentless=False):
        return super().increase_indent(flow, False)


def text_of(dumper, text):
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, text_of)


def dump(value):
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True)


def manifest(*documents):
    return HEADER + "---\n".join(dump(document) for document in documents)


class Charts:
    """The charts as Helm renders them, in a folder of their own: the sources stay as they are."""

    def __init__(self, helm, folder):
        self.helm = helm
        self.folder = pathlib.Path(folder)
        shutil.copytree(DEPLOY / "helm", self.folder, dirs_exist_ok=True)
        for name in COPIES:
            shutil.copy(DEPLOY / "monitoring" / name, self.folder / "sortie/files" / name)
        self.run("dependency", "build", self.folder / "example-app")

    def run(self, *arguments):
        command = [self.helm, *map(str, arguments)]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{ran.stderr}")
        return ran.stdout

    def render(self, chart, release, values=(), **options):
        """The documents, by kind and name."""
        arguments = ["template", release, self.folder / chart, "--kube-version", "1.33"]
        for file in values:
            arguments += ["--values", self.folder / chart / file]
        for key, value in options.items():
            arguments += ["--set", f"{key.replace('__', '.')}={value}"]
        documents = yaml.safe_load_all(self.run(*arguments))
        return {(one["kind"], one["metadata"]["name"]): one for one in documents if one}


def plain(document):
    """Without what only Helm has a use for: a generated ConfigMap rolls the pods by its name."""
    document = copy.deepcopy(document)
    templates = [document, document.get("spec", {}).get("template", {})]
    for metadata in [one.get("metadata", {}) for one in templates]:
        for label in HELM_LABELS:
            metadata.get("labels", {}).pop(label, None)
        if "annotations" in metadata:
            metadata["annotations"].pop("checksum/config", None)
            if not metadata["annotations"]:
                del metadata["annotations"]
    return document


def kustomization(kind="Kustomization", **fields):
    version = "kustomize.config.k8s.io/v1alpha1" if kind == "Component" else "kustomize.config.k8s.io/v1beta1"
    return manifest({"apiVersion": version, "kind": kind, **fields})


def config_files(config_map):
    return {name: text.rstrip("\n") + "\n" for name, text in config_map["data"].items()}


def generator(config_map, behavior=None):
    one = {"name": config_map["metadata"]["name"]}
    if behavior:
        one["behavior"] = behavior
    return [{**one, "files": sorted(config_map["data"])}]


def namespace(name, level, comment):
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ["enforce", "warn"]}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    return HEADER + comment + dump(document)


def shared(charts):
    """The base, two components, and the overlay with both."""
    values = ["ci/shared-values.yaml"]
    base = charts.render("sortie", "sortie", values)
    everything = {
        "autoscaling__enabled": "true",
        "monitoring__serviceMonitor__enabled": "true",
        "monitoring__rules__enabled": "true",
        "monitoring__dashboard__enabled": "true",
    }
    full = charts.render("sortie", "sortie", values, **everything)
    config = base.pop(("ConfigMap", "sortie-config"))
    files, resources = {}, []
    for (kind, name), document in base.items():
        file = f"{kind.lower()}{name.removeprefix('sortie')}.yaml"
        files[f"base/{file}"] = manifest(plain(document))
        resources.append(file)
    files["base/kustomization.yaml"] = kustomization(
        resources=sorted(resources), configMapGenerator=generator(config)
    )
    files |= {f"base/{name}": text for name, text in config_files(config).items()}

    hpa = full[("HorizontalPodAutoscaler", "sortie")]
    files["components/hpa/hpa.yaml"] = manifest(plain(hpa))
    files["components/hpa/kustomization.yaml"] = kustomization(
        "Component",
        resources=["hpa.yaml"],
        patches=[
            {
                "target": {"kind": "Deployment", "name": "sortie"},
                "patch": "# The autoscaler alone says how many.\n- {op: remove, path: /spec/replicas}\n",
            }
        ],
    )
    pods = charts.render("sortie", "sortie", ["ci/sidecar-values.yaml"], monitoring__podMonitor__everywhere="true")
    monitors = {
        "servicemonitor.yaml": full[("ServiceMonitor", "sortie")],
        "podmonitor.yaml": pods[("PodMonitor", "sortie")],
        "prometheusrule.yaml": full[("PrometheusRule", "sortie")],
        "dashboard.yaml": full[("ConfigMap", "sortie-dashboard")],
    }
    files |= {f"components/monitoring/{name}": manifest(plain(one)) for name, one in monitors.items()}
    files["components/monitoring/kustomization.yaml"] = kustomization("Component", resources=sorted(monitors))

    config = full[("ConfigMap", "sortie-config")]
    files["overlays/shared/namespace.yaml"] = namespace("sortie", "restricted", "")
    files["overlays/shared/kustomization.yaml"] = kustomization(
        namespace="sortie",
        resources=["../../base", "namespace.yaml"],
        components=["../../components/hpa", "../../components/monitoring"],
        configMapGenerator=generator(config, "replace"),
    )
    return files | {f"overlays/shared/{name}": text for name, text in config_files(config).items()}


def sidecar(charts):
    """The app of the example without its sidecar, and the components that add it again."""
    documents = charts.render("example-app", "agent")
    app = plain(documents[("Deployment", "agent")])
    config = documents[("ConfigMap", "sortie-config")]
    template = app["spec"]["template"]
    spec = template["spec"]
    ours = {one["name"]: one for one in spec["initContainers"] if one["name"] in OURS}
    spec["initContainers"] = [one for one in spec["initContainers"] if one["name"] not in OURS]
    volumes = [one for one in spec["volumes"] if one["name"].startswith("sortie-")]
    spec["volumes"] = [one for one in spec["volumes"] if one not in volumes]
    for key in ["initContainers", "volumes"]:
        if not spec[key]:
            del spec[key]
    # A release has a name, a patch for any app does not.
    label = {"sortie/sidecar": "true"}
    app["metadata"]["labels"] |= label
    del template["metadata"]["labels"]["sortie/sidecar"]
    grace = spec.pop("terminationGracePeriodSeconds")

    def patch(metadata, spec):
        template = {"spec": spec}
        if metadata:
            template = {"metadata": metadata, "spec": spec}
        document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "any"}}
        return manifest({**document, "spec": {"template": template}})

    def component(**fields):
        target = {"kind": "Deployment", "labelSelector": "sortie/sidecar"}
        return kustomization("Component", **fields, patches=[{"path": "patch.yaml", "target": target}])

    gateway = {
        "terminationGracePeriodSeconds": grace,
        "initContainers": [ours["gateway"]],
        "volumes": volumes,
    }
    files = {
        "components/sidecar/patch.yaml": patch({"labels": label}, gateway),
        "components/sidecar/kustomization.yaml": component(configMapGenerator=generator(config)),
        # It comes after the sidecar's, so that it stands before it in the pod.
        "components/egress-fence/patch.yaml": patch(None, {"initContainers": [ours["sortie-fence"]]}),
        "components/egress-fence/kustomization.yaml": component(),
        "overlays/sidecar-example/app.yaml": manifest(app),
        "overlays/sidecar-example/namespace.yaml": namespace(
            "agents", "privileged", "# The fence's init container needs NET_ADMIN, which neither `restricted` nor `baseline` allows.\n"
        ),
        "overlays/sidecar-example/kustomization.yaml": kustomization(
            namespace="agents",
            resources=["app.yaml", "namespace.yaml", "../../../admission"],
            components=["../../components/sidecar", "../../components/egress-fence"],
        ),
    }
    return files | {f"components/sidecar/{name}": text for name, text in config_files(config).items()}


def admission(charts):
    documents = charts.render("sortie", "sortie", ["ci/sidecar-values.yaml"]).items()
    policies = [plain(one) for (kind, _), one in documents if kind.startswith("ValidatingAdmission")]
    return {
        "no-gateway-uid.yaml": manifest(*policies),
        "kustomization.yaml": kustomization(resources=["no-gateway-uid.yaml"]),
    }


def made(charts):
    """What is made, by its path below deploy/."""
    files = {f"kustomize/{path}": text for path, text in (shared(charts) | sidecar(charts)).items()}
    files |= {f"admission/{path}": text for path, text in admission(charts).items()}
    for name in COPIES:
        files[f"helm/sortie/files/{name}"] = (charts.folder / "sortie/files" / name).read_text()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--helm", default="helm")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = made(Charts(arguments.helm, folder))
    places = [DEPLOY / "kustomize" / room for room in ["base", "components", "overlays"]]
    places += [DEPLOY / "admission", DEPLOY / "helm/sortie/files"]
    there = {str(path.relative_to(DEPLOY)) for place in places for path in place.rglob("*") if path.is_file()}
    differs = sorted(there - files.keys())
    for path, text in files.items():
        target = DEPLOY / path
        if not target.exists() or target.read_text() != text:
            differs.append(path)
    if arguments.check:
        for path in differs:
            print(f"deploy/{path} is not what the charts make of it: run deploy/kustomize/render.py")
        sys.exit(1 if differs else 0)
    for path in differs:
        target = DEPLOY / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path])
        else:
            target.unlink()
        print(f"deploy/{path}")


if __name__ == "__main__":
    main()
