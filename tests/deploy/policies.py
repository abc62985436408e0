#!/usr/bin/env python3
"""What has to hold for manifests, and what schema validators do not see.

    policies.py [--external KIND/NAME]... [--sortie PROGRAM] RENDERING...

Each RENDERING is a file with all that belongs together. What is wrong is printed, a line each, and the exit is then 1.
`--external` is what others make: a Secret, most often. With `--sortie` that program checks the configuration.
"""

import argparse
import ipaddress
import os
import subprocess
import sys
import tempfile

import yaml

import manifests
from manifests import CONFIG_FOLDER, FENCE, GATEWAY, Rendering, port_values, seconds, selected, volume_sources

GATEWAY_UID = 65532
PROBES = ["startupProbe", "readinessProbe", "livenessProbe"]
PATHS = {"startupProbe": "/readyz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
# What "restricted" lets a pod mount.
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
# The kernel's settings that it lets a pod change.
SYSCTLS = {"kernel.shm_rmid_forced"} | {
    f"net.ipv4.{name}"
    for name in """
        ip_local_port_range ip_local_reserved_ports ip_unprivileged_port_start ping_group_range tcp_fin_timeout
        tcp_keepalive_intvl tcp_keepalive_probes tcp_keepalive_time tcp_rmem tcp_syncookies tcp_wmem
    """.split()
}
# Sortie's own, where its configuration says nothing.
ADDRESSES = {"api": "127.0.0.1:8477", "telemetry": ":9477"}
# Kubernetes' own, where a pod says nothing.
DEFAULT_GRACE = 30
# What is left for the end after the last call.
MARGIN = 5


def restart_policies(rendering, _):
    for pod in rendering.pods():
        for field, container in pod.containers():
            policy = container.get("restartPolicy")
            if policy is not None and (field, policy) != ("initContainers", "Always"):
                yield pod.document, f"{field}: {container['name']}: restartPolicy is {policy}; only Always is one, of an init container"


def probe_ports(rendering, _):
    for pod in rendering.pods():
        for field, container in pod.containers():
            there = set(port_values(container))
            for probe in PROBES:
                for kind in ["httpGet", "tcpSocket", "grpc"]:
                    port = container.get(probe, {}).get(kind, {}).get("port")
                    if port is not None and port not in there:
                        yield pod.document, f"{field}: {container['name']}: {probe}: no port {port!r}"


def service_ports(rendering, _):
    for service in rendering.of("Service"):
        for pod in rendering.pods_of(service, {"matchLabels": service["spec"].get("selector") or {}}):
            for port in service["spec"]["ports"]:
                target = port.get("targetPort", port["port"])
                if target not in pod.ports():
                    yield service, f"port {port.get('name')}: targetPort {target!r} is no port of {pod.document['metadata']['name']}"


def monitor_ports(rendering, _):
    for monitor in rendering.of("PodMonitor"):
        for pod in rendering.pods_of(monitor, monitor["spec"]["selector"]):
            for endpoint in monitor["spec"]["podMetricsEndpoints"]:
                if endpoint.get("port") not in pod.ports():
                    yield monitor, f"no port {endpoint.get('port')!r} in {pod.document['metadata']['name']}"
    for monitor in rendering.of("ServiceMonitor"):
        services = [
            one
            for one in rendering.of("Service")
            if selected(monitor["spec"]["selector"], one["metadata"].get("labels") or {})
        ]
        if not services:
            yield monitor, "its selector finds no Service"
        for service in services:
            names = [port.get("name") for port in service["spec"]["ports"]]
            for endpoint in monitor["spec"]["endpoints"]:
                if endpoint.get("port") not in names:
                    yield monitor, f"no port {endpoint.get('port')!r} in Service {service['metadata']['name']}"


def monitor_jobs(rendering, _):
    for monitor in rendering.of("PodMonitor"):
        label = monitor["spec"].get("jobLabel")
        if not label and (monitor["spec"].get("namespaceSelector") or {}).get("any"):
            yield monitor, "no jobLabel: all apps are one job, so that their configurations look like drift"
        for pod in rendering.pods_of(monitor, monitor["spec"]["selector"]) if label else []:
            if label not in pod.labels:
                yield monitor, f"jobLabel {label} is no label of {pod.document['metadata']['name']}"


def network_policy_ports(rendering, _):
    for policy in rendering.of("NetworkPolicy"):
        for pod in rendering.pods_of(policy, policy["spec"]["podSelector"]):
            for rule in policy["spec"].get("ingress") or []:
                for port in rule.get("ports") or []:
                    if port["port"] not in pod.ports():
                        yield policy, f"ingress: port {port['port']!r} is no port of {pod.document['metadata']['name']}"


def references_of(pod):
    """What a pod needs that it does not have itself: kind, name, the keys that it names, and where it says so."""
    for volume in pod.spec.get("volumes") or []:
        for kind, name, source in volume_sources(volume):
            if not source.get("optional"):
                keys = [item["key"] for item in source.get("items") or []]
                yield kind, name, keys, f"volume {volume['name']}"
    for field, container in pod.containers():
        where = f"{field}: {container['name']}"
        for variable in container.get("env") or []:
            for key, kind in [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")]:
                source = variable.get("valueFrom", {}).get(key)
                if source and not source.get("optional"):
                    yield kind, source["name"], [source["key"]], f"{where}: env {variable['name']}"
        for one in container.get("envFrom") or []:
            for key, kind in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")]:
                if key in one and not one[key].get("optional"):
                    yield kind, one[key]["name"], [], f"{where}: envFrom"
    for secret in pod.spec.get("imagePullSecrets") or []:
        yield "Secret", secret["name"], [], "imagePullSecrets"
    account = pod.spec.get("serviceAccountName", "default")
    if account != "default":
        yield "ServiceAccount", account, [], "serviceAccountName"


def references(rendering, options):
    for pod in rendering.pods():
        for kind, name, keys, where in references_of(pod):
            if f"{kind}/{name}" in options.external:
                continue
            document = rendering.find(kind, name, pod.namespace)
            if document is None:
                yield pod.document, f"{where}: {kind} {name} is not here, and not named as external"
                continue
            there = {**(document.get("data") or {}), **(document.get("stringData") or {})}
            for key in keys:
                if key not in there:
                    yield pod.document, f"{where}: {kind} {name} has no {key}"


def selectors(rendering, _):
    for document in rendering.of("Deployment", "StatefulSet", "DaemonSet"):
        labels = document["spec"]["template"]["metadata"].get("labels") or {}
        if not selected(document["spec"]["selector"], labels):
            yield document, "its selector does not take its own pods"
    for document in rendering.of("Service"):
        selector = document["spec"].get("selector")
        if selector and not rendering.pods_of(document, {"matchLabels": selector}):
            yield document, "its selector finds no pod"
    for document in rendering.of("PodDisruptionBudget"):
        if not rendering.pods_of(document, document["spec"]["selector"]):
            yield document, "its selector finds no pod"
    for pod in rendering.pods():
        for constraint in pod.spec.get("topologySpreadConstraints") or []:
            if not selected(constraint["labelSelector"], pod.labels):
                yield pod.document, "topologySpreadConstraints: the selector does not take its own pods"


def autoscalers(rendering, _):
    for scaler in rendering.of("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        document = rendering.find(target["kind"], target["name"], manifests.namespace(scaler))
        if document is None:
            yield scaler, f"{target['kind']} {target['name']} is not here"
            continue
        if "replicas" in document["spec"]:
            yield scaler, f"{target['kind']} {target['name']} says `replicas` too, so each rollout undoes the scaling"
        names = [one["name"] for one in document["spec"]["template"]["spec"]["containers"]]
        for metric in scaler["spec"]["metrics"]:
            container = metric.get("containerResource", {}).get("container")
            if metric["type"] == "ContainerResource" and container not in names:
                yield scaler, f"no container {container!r} in {target['name']}"


def parsed(text):
    """A range, or the sentence that says why it is none."""
    try:
        return ipaddress.ip_network(text), None
    except ValueError as error:
        return None, f"CIDR {text!r}: {error}"


def cidrs(rendering, _):
    for policy in rendering.of("NetworkPolicy"):
        for direction, peers in [("ingress", "from"), ("egress", "to")]:
            for rule in policy["spec"].get(direction) or []:
                for block in [peer["ipBlock"] for peer in rule.get(peers) or [] if "ipBlock" in peer]:
                    whole, wrong = parsed(block["cidr"])
                    if wrong:
                        yield policy, f"{direction}: {wrong}"
                    for text in block.get("except") or []:
                        part, wrong = parsed(text)
                        if wrong:
                            yield policy, f"{direction}: except: {wrong}"
                        elif whole and (part.version != whole.version or not part.subnet_of(whole)):
                            yield policy, f"{direction}: except {text} is not inside {whole}"


def sub_paths(rendering, _):
    for pod in rendering.pods():
        swapped = {
            volume["name"]
            for volume in pod.spec.get("volumes") or []
            if {"configMap", "secret", "projected"} & volume.keys()
        }
        for field, container in pod.containers():
            for mount in container.get("volumeMounts") or []:
                if mount["name"] in swapped and ("subPath" in mount or "subPathExpr" in mount):
                    yield pod.document, f"{field}: {container['name']}: {mount['mountPath']} is a subPath, which never changes while the pod lives"


def restricted(rendering, _):
    for pod in rendering.pods():
        whole = pod.spec.get("securityContext") or {}
        for key in ["hostNetwork", "hostPID", "hostIPC"]:
            if pod.spec.get(key):
                yield pod.document, f"{key} is on"
        for one in whole.get("sysctls") or []:
            if one["name"] not in SYSCTLS:
                yield pod.document, f"sysctl {one['name']} is set"
        for volume in pod.spec.get("volumes") or []:
            for kind in volume.keys() - {"name"} - VOLUMES:
                yield pod.document, f"volume {volume['name']}: {kind}"
        if pod.ours()[0] == "containers" and pod.spec.get("automountServiceAccountToken") is not False:
            yield pod.document, "automountServiceAccountToken is not false"
        for field, container in pod.containers():
            fence = (field, container["name"]) == ("initContainers", FENCE)
            own = container.get("securityContext") or {}
            for port in container.get("ports") or []:
                if port.get("hostPort"):
                    yield pod.document, f"{field}: {container['name']}: hostPort {port['hostPort']} is a port of the node"
            for sentence in unrestricted(own, whole, fence):
                yield pod.document, f"{field}: {container['name']}: {sentence}"
            if container["name"] in [GATEWAY, FENCE] and own.get("readOnlyRootFilesystem") is not True:
                yield pod.document, f"{field}: {container['name']}: readOnlyRootFilesystem is not true"


def unrestricted(own, whole, fence):
    """What the profile "restricted" refuses. The fence alone is root, with one right."""
    if not fence and not own.get("runAsNonRoot", whole.get("runAsNonRoot")):
        yield "runAsNonRoot is not true"
    if not fence and own.get("runAsUser", whole.get("runAsUser")) == 0:
        yield "runAsUser is 0"
    if own.get("privileged"):
        yield "privileged is true"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if own.get("procMount", "Default") != "Default":
        yield f"procMount is {own['procMount']}"
    capabilities = own.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or []):
        yield "capabilities: ALL are not dropped"
    for one in capabilities.get("add") or []:
        if one != ("NET_ADMIN" if fence else "NET_BIND_SERVICE"):
            yield f"capabilities: {one} is added"
    seccomp = (own.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
    if seccomp not in ["RuntimeDefault", "Localhost"]:
        yield f"seccompProfile is {seccomp or 'not set'}"


def resources(rendering, _):
    for pod in rendering.pods():
        for name in [GATEWAY, FENCE]:
            field, container = pod.ours(name)
            if container:
                limits = container.get("resources", {}).get("limits") or {}
                if "memory" not in limits:
                    yield pod.document, f"{field}: {name}: no memory limit"
                if "cpu" in limits:
                    yield pod.document, f"{field}: {name}: a CPU limit, which is felt as slow tools"


def images(rendering, _):
    for pod in rendering.pods():
        for field, container in pod.containers():
            name, _, digest = container["image"].partition("@")
            tag = name.rpartition("/")[2].partition(":")[2]
            if tag == "latest" or not (tag or digest):
                yield pod.document, f"{field}: {container['name']}: image {container['image']} names no version"


def sidecars(rendering, _):
    for pod in rendering.pods():
        _, gateway = pod.ours()
        if not gateway or not pod.is_sidecar():
            continue
        if "lifecycle" in gateway:
            yield pod.document, "the sidecar has a preStop hook or a postStart one: it ends after the app by itself"
        if gateway.get("restartPolicy") != "Always":
            yield pod.document, "the gateway is an init container without restartPolicy Always: the app never starts"
        order = [one["name"] for one in pod.spec["initContainers"]]
        if FENCE in order and order[0] != FENCE:
            yield pod.document, f"{FENCE} is not the first init container: {order[0]} runs before it"
        whole = (pod.spec.get("securityContext") or {}).get("runAsUser")
        for field, container in pod.containers():
            user = (container.get("securityContext") or {}).get("runAsUser", whole)
            if container["name"] == GATEWAY and user != GATEWAY_UID:
                yield pod.document, f"the gateway runs as UID {user}, not {GATEWAY_UID}"
            if container["name"] not in [GATEWAY, FENCE] and user in [None, 0, GATEWAY_UID]:
                yield pod.document, f"{field}: {container['name']}: runs as UID {user}: the fence would not hold it"


def probes(rendering, _):
    for pod in rendering.pods():
        field, gateway = pod.ours()
        telemetry = {"telemetry", named_ports(gateway).get("telemetry")} if gateway else set()
        for probe, path in PATHS.items() if gateway else []:
            asked = gateway.get(probe, {}).get("httpGet", {})
            if asked.get("path") != path:
                yield pod.document, f"{field}: {GATEWAY}: {probe} asks for {asked.get('path')}, not {path}"
            port = asked.get("port")
            # That there is no such port is said already.
            if port in port_values(gateway) and port not in telemetry:
                yield pod.document, f"{field}: {GATEWAY}: {probe} asks at port {port}, not telemetry"


def named_ports(container):
    """The numbers of a container's ports, by name."""
    return {port["name"]: port["containerPort"] for port in container.get("ports") or [] if "name" in port}


def gateways(rendering):
    """Each pod with a gateway whose configuration is here."""
    for pod in rendering.pods():
        config = pod.config() if pod.ours()[1] else None
        if config is not None:
            yield pod, config


def found_configurations(rendering, options):
    for pod in rendering.pods():
        if pod.ours()[1] and pod.config() is None:
            mounted = {f"{kind}/{name}" for kind, name, _ in pod.config_sources()}
            if not mounted & set(options.external):
                yield pod.document, f"{CONFIG_FOLDER}/sortie.yaml: configuration not found, so not checked"


def timeouts(config):
    """How long each tool may take, in seconds."""
    defaults = manifests.profile_timeouts()
    for profile in config["profiles"]:
        defaults[profile["name"]] = seconds(profile.get("timeout", {}).get("default", "30s"))
    for tool in config["tools"]:
        if "timeout_ms" in tool:
            yield tool["name"], seconds(f"{tool['timeout_ms']}ms")
        elif "timeoutSeconds" in tool:
            yield tool["name"], tool["timeoutSeconds"]
        elif "timeout" in tool:
            yield tool["name"], seconds(tool["timeout"])
        else:
            yield tool["name"], defaults[tool.get("profile", "envelope-v1")]


def grace(rendering, _):
    for pod, config in gateways(rendering):
        whole = pod.spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
        shutdown = config.get("shutdown") or {}
        accept, calls = (seconds(shutdown.get(key, default)) for key, default in [("accept_for", "0s"), ("grace", "25s")])
        if whole < accept + calls + MARGIN:
            yield pod.document, f"terminationGracePeriodSeconds is {whole}: accept_for {accept} s, grace {calls} s and {MARGIN} s are {accept + calls + MARGIN}"
        for tool, timeout in timeouts(config):
            if whole < timeout + MARGIN:
                yield pod.document, f"terminationGracePeriodSeconds is {whole}, and tool {tool} may take {timeout} s: {timeout + MARGIN} at least"
            if calls < timeout:
                yield pod.document, f"shutdown.grace is {calls} s, and tool {tool} may take {timeout} s: a restart cuts its calls off"


def listeners(rendering, _):
    for pod, config in gateways(rendering):
        _, gateway = pod.ours()
        ports = named_ports(gateway)
        for name, default in ADDRESSES.items():
            listener = (config.get("listeners") or {}).get(name) or {}
            if "unix" in listener:
                continue
            address = listener.get("address", default)
            host, _, port = address.rpartition(":")
            if int(port) != ports.get(name):
                yield pod.document, f"listeners.{name} is at {address}, and the container's port {name} is {ports.get(name)}"
            loopback = host in ["localhost", "[::1]"] or host.startswith("127.")
            if name == "api" and loopback != pod.is_sidecar():
                wanted = "on loopback, as it is the app's alone" if pod.is_sidecar() else "on an address that a Service reaches"
                yield pod.document, f"listeners.api is at {address}: it has to be {wanted}"
            if name == "telemetry" and loopback:
                yield pod.document, f"listeners.telemetry is at {address}: neither probes nor Prometheus reach it"


def files_in(value):
    """Every `{file: PATH}` of a configuration."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "file" and isinstance(inner, str):
                yield inner
            yield from files_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from files_in(inner)


def secret_files(rendering, _):
    for pod, config in gateways(rendering):
        _, gateway = pod.ours()
        mounts = [mount["mountPath"].rstrip("/") + "/" for mount in gateway.get("volumeMounts") or []]
        for file in files_in(config):
            path = os.path.normpath(os.path.join(CONFIG_FOLDER, file))
            if not any(path.startswith(mount) for mount in mounts):
                yield pod.document, f"the configuration reads {file}, and nothing is mounted there"


def configurations(rendering, options):
    for document in rendering.of("ConfigMap") if options.sortie else []:
        files = document.get("data") or {}
        if "sortie.yaml" not in files:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            command = [options.sortie, "check", os.path.join(folder, "sortie.yaml")]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode != 0:
                lines = (ran.stdout + ran.stderr).splitlines()
                # That secrets are not here is no wonder.
                for line in [one for one in lines if ": warning: " not in one]:
                    yield document, f"sortie check: {line.replace(folder + '/', '')}"


POLICIES = [
    restart_policies,
    probe_ports,
    service_ports,
    monitor_ports,
    monitor_jobs,
    network_policy_ports,
    references,
    selectors,
    autoscalers,
    cidrs,
    sub_paths,
    restricted,
    resources,
    images,
    sidecars,
    probes,
    found_configurations,
    grace,
    listeners,
    secret_files,
    configurations,
]


def findings(rendering, options):
    """What is wrong, a sentence each."""
    for policy in POLICIES:
        for document, sentence in policy(rendering, options):
            yield f"{document['kind']}/{document['metadata']['name']}: {sentence}"


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--external", action="append", default=[], metavar="KIND/NAME")
    parser.add_argument("--sortie", metavar="PROGRAM")
    parser.add_argument("renderings", nargs="+", metavar="RENDERING")
    return parser.parse_args(given)


def main():
    options = arguments()
    wrong = False
    for path in options.renderings:
        try:
            rendering = Rendering.read(path)
        except yaml.YAMLError as error:
            sys.exit(f"{path}: {error}")
        if not rendering.documents:
            sys.exit(f"{path}: no document")
        for finding in findings(rendering, options):
            print(f"{path}: {finding}")
            wrong = True
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
