"""Each policy refuses what it is for, with a sentence, and nothing else is said then.

RENDERINGS is a folder with good ones: shared-full.yaml and example-app.yaml. SORTIE is the program that checks configurations.
"""

import copy
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import yaml

import policies
from manifests import Rendering

EXTERNAL = ["Secret/sortie-tools", "Secret/sortie-tls", "Secret/registry"]
NOT_CHECKED = "/etc/sortie/sortie.yaml: configuration not found, so not checked"
FOLDER = pathlib.Path(os.environ["RENDERINGS"])


def options(program=None, external=()):
    external = [word for name in [*EXTERNAL, *external] for word in ["--external", name]]
    check = ["--sortie", program] if program else []
    return policies.arguments([*external, *check, "none"])


def load(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


SHARED = load("shared-full.yaml")
SIDECAR = load("example-app.yaml")


class Changed:
    """A good rendering, to be spoilt."""

    def __init__(self, documents):
        self.documents = copy.deepcopy([one for one in documents if one])

    def one(self, kind, name=None):
        found = [one for one in self.documents if one["kind"] == kind and name in [None, one["metadata"]["name"]]]
        assert len(found) == 1, (kind, name, len(found))
        return found[0]

    @property
    def pod(self):
        return self.one("Deployment")["spec"]["template"]["spec"]

    def container(self, name="gateway"):
        both = [*self.pod.get("initContainers", []), *self.pod["containers"]]
        return next(one for one in both if one["name"] == name)

    def volume(self, name):
        return next(one for one in self.pod["volumes"] if one["name"] == name)

    def configure(self, change):
        data = next(one for one in self.documents if one["kind"] == "ConfigMap" and "sortie.yaml" in one["data"])["data"]
        config = yaml.safe_load(data["sortie.yaml"])
        change(config)
        data["sortie.yaml"] = yaml.safe_dump(config)


class Policies(unittest.TestCase):
    def refused(self, documents, spoil, *sentences, program=None, external=()):
        """Exactly these sentences are said."""
        changed = Changed(documents)
        spoil(changed)
        found = list(policies.findings(Rendering(changed.documents), options(program, external)))
        self.assertEqual(found, list(sentences))

    def shared(self, spoil, *sentences):
        self.refused(SHARED, spoil, *sentences)

    def sidecar(self, spoil, *sentences):
        self.refused(SIDECAR, spoil, *sentences)

    def test_good_renderings_pass(self):
        self.shared(lambda r: None)
        self.sidecar(lambda r: None)

    def test_restart_policies(self):
        self.sidecar(
            lambda r: r.container().update(restartPolicy="Sometimes"),
            "Deployment/agent: initContainers: gateway: restartPolicy is Sometimes; only Always is one, of an init container",
            "Deployment/agent: the gateway is an init container without restartPolicy Always: the app never starts",
        )

    def test_a_probe_s_port(self):
        self.shared(
            lambda r: r.container()["readinessProbe"]["httpGet"].update(port="metrics"),
            "Deployment/s-sortie: containers: gateway: readinessProbe: no port 'metrics'",
        )

    def test_a_service_s_port(self):
        self.shared(
            lambda r: r.one("Service")["spec"]["ports"][0].update(targetPort="http"),
            "Service/s-sortie: port api: targetPort 'http' is no port of s-sortie",
        )

    def test_a_monitor_s_port(self):
        self.shared(
            lambda r: r.one("ServiceMonitor")["spec"]["endpoints"][0].update(port="metrics"),
            "ServiceMonitor/s-sortie: no port 'metrics' in Service s-sortie",
        )

        def spoil(r):
            endpoint = {"port": "metrics", "path": "/metrics"}
            spec = {"selector": {"matchLabels": {"sortie/sidecar": "agent"}}, "podMetricsEndpoints": [endpoint]}
            r.documents.append({"kind": "PodMonitor", "metadata": {"name": "sidecars"}, "spec": spec})

        self.sidecar(spoil, "PodMonitor/sidecars: no port 'metrics' in agent")

    def test_a_monitor_of_all_apps_tells_them_apart(self):
        def monitor(r, label):
            selector = {"matchExpressions": [{"key": "sortie/sidecar", "operator": "Exists"}]}
            spec = {"namespaceSelector": {"any": True}, "selector": selector, "podMetricsEndpoints": [{"port": "telemetry"}]}
            spec |= {"jobLabel": label} if label else {}
            r.documents.append({"kind": "PodMonitor", "metadata": {"name": "sidecars"}, "spec": spec})

        self.sidecar(lambda r: monitor(r, "app.kubernetes.io/name"))
        self.sidecar(
            lambda r: monitor(r, None),
            "PodMonitor/sidecars: no jobLabel: all apps are one job, so that their configurations look like drift",
        )
        self.sidecar(lambda r: monitor(r, "app"), "PodMonitor/sidecars: jobLabel app is no label of agent")

    def test_a_network_policy_s_port(self):
        self.shared(
            lambda r: r.one("NetworkPolicy", "s-sortie")["spec"]["ingress"][0]["ports"][0].update(port=8478),
            "NetworkPolicy/s-sortie: ingress: port 8478 is no port of s-sortie",
        )

    def test_a_missing_config_map(self):
        self.shared(
            lambda r: r.documents.remove(r.one("ConfigMap", "s-sortie-config")),
            "Deployment/s-sortie: volume sortie-config: ConfigMap s-sortie-config is not here, and not named as external",
            "Deployment/s-sortie: " + NOT_CHECKED,
        )

    def test_a_missing_key_of_a_config_map(self):
        self.shared(
            lambda r: r.volume("sortie-config")["configMap"].update(items=[{"key": "main.yaml", "path": "sortie.yaml"}]),
            "Deployment/s-sortie: volume sortie-config: ConfigMap s-sortie-config has no main.yaml",
            "Deployment/s-sortie: " + NOT_CHECKED,
        )

    def test_a_missing_secret(self):
        self.shared(
            lambda r: r.volume("sortie-secrets")["projected"]["sources"][1]["secret"].update(name="tls"),
            "Deployment/s-sortie: volume sortie-secrets: Secret tls is not here, and not named as external",
        )
        self.shared(
            lambda r: r.container()["env"].append({"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}}),
            "Deployment/s-sortie: containers: gateway: env KEY: Secret keys is not here, and not named as external",
        )

    def test_selectors(self):
        self.shared(
            lambda r: r.one("Service")["spec"]["selector"].update({"app.kubernetes.io/component": "gateway"}),
            "Service/s-sortie: its selector finds no pod",
        )
        self.shared(
            lambda r: r.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].update(tier="edge"),
            "PodDisruptionBudget/s-sortie: its selector finds no pod",
        )
        self.shared(
            lambda r: r.one("Deployment")["spec"]["selector"]["matchLabels"].update(tier="edge"),
            "Deployment/s-sortie: its selector does not take its own pods",
        )
        self.shared(
            lambda r: r.pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].update(tier="edge"),
            "Deployment/s-sortie: topologySpreadConstraints: the selector does not take its own pods",
        )
        self.shared(
            lambda r: r.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].update(tier="edge"),
            "ServiceMonitor/s-sortie: its selector finds no Service",
        )

    def test_an_autoscaler(self):
        self.shared(
            lambda r: r.one("HorizontalPodAutoscaler")["spec"]["metrics"][0]["containerResource"].update(container="sortie"),
            "HorizontalPodAutoscaler/s-sortie: no container 'sortie' in s-sortie",
        )
        self.shared(
            lambda r: r.one("Deployment")["spec"].update(replicas=2),
            "HorizontalPodAutoscaler/s-sortie: Deployment s-sortie says `replicas` too, so each rollout undoes the scaling",
        )
        self.shared(
            lambda r: r.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"].update(name="gateway"),
            "HorizontalPodAutoscaler/s-sortie: Deployment gateway is not here",
        )

    def test_a_cidr_that_does_not_parse(self):
        def block(r):
            return r.one("NetworkPolicy", "s-sortie")["spec"]["egress"][0]["to"][0]["ipBlock"]

        self.shared(
            lambda r: r.one("NetworkPolicy", "s-sortie")["spec"]["egress"][2]["to"][0]["ipBlock"].update(cidr="10.20.0.0/77"),
            "NetworkPolicy/s-sortie: egress: CIDR '10.20.0.0/77': '10.20.0.0/77' does not appear to be an IPv4 or IPv6 network",
        )
        self.shared(
            lambda r: block(r)["except"].append("10.0.0.1/8"),
            "NetworkPolicy/s-sortie: egress: except: CIDR '10.0.0.1/8': 10.0.0.1/8 has host bits set",
        )
        self.shared(
            lambda r: block(r)["except"].append("fd00::/8"),
            "NetworkPolicy/s-sortie: egress: except fd00::/8 is not inside 0.0.0.0/0",
        )

        def narrow(r):
            block(r).update(cidr="198.51.100.0/24")
            block(r)["except"] = ["198.51.100.7/32", "203.0.113.0/24"]

        self.shared(narrow, "NetworkPolicy/s-sortie: egress: except 203.0.113.0/24 is not inside 198.51.100.0/24")

    def test_a_sub_path(self):
        sentence = "/etc/sortie/sortie.yaml is a subPath, which never changes while the pod lives"
        changed = {"mountPath": "/etc/sortie/sortie.yaml", "subPath": "sortie.yaml"}

        def spoil(r):
            r.container()["volumeMounts"].append({**r.container()["volumeMounts"][0], **changed})

        self.shared(spoil, f"Deployment/s-sortie: containers: gateway: {sentence}")
        self.sidecar(spoil, f"Deployment/agent: initContainers: gateway: {sentence}")

    def test_the_restricted_profile(self):
        def spoilt(sentence, change, container="gateway", where="containers"):
            self.shared(
                lambda r: change(r.container(container)["securityContext"]),
                f"Deployment/s-sortie: {where}: {container}: {sentence}",
            )

        spoilt("runAsNonRoot is not true", lambda c: c.update(runAsNonRoot=False))
        spoilt("runAsUser is 0", lambda c: c.update(runAsUser=0))
        spoilt("privileged is true", lambda c: c.update(privileged=True))
        spoilt("allowPrivilegeEscalation is not false", lambda c: c.pop("allowPrivilegeEscalation"))
        spoilt("readOnlyRootFilesystem is not true", lambda c: c.pop("readOnlyRootFilesystem"))
        spoilt("capabilities: ALL are not dropped", lambda c: c.pop("capabilities"))
        spoilt("capabilities: NET_ADMIN is added", lambda c: c["capabilities"].update(add=["NET_ADMIN"]))
        spoilt("procMount is Unmasked", lambda c: c.update(procMount="Unmasked"))
        spoilt("seccompProfile is Unconfined", lambda c: c.update(seccompProfile={"type": "Unconfined"}))
        self.shared(lambda r: r.container()["securityContext"].update(procMount="Default"))
        self.shared(
            lambda r: r.container()["ports"][0].update(hostPort=8477),
            "Deployment/s-sortie: containers: gateway: hostPort 8477 is a port of the node",
        )

        def sysctl(r, name):
            r.pod.setdefault("securityContext", {})["sysctls"] = [{"name": name, "value": "1"}]

        self.shared(lambda r: sysctl(r, "kernel.msgmax"), "Deployment/s-sortie: sysctl kernel.msgmax is set")
        self.shared(lambda r: sysctl(r, "net.ipv4.tcp_syncookies"))
        self.shared(lambda r: r.pod.update(hostNetwork=True), "Deployment/s-sortie: hostNetwork is on")
        self.shared(
            lambda r: r.pod["volumes"].append({"name": "node", "hostPath": {"path": "/"}}),
            "Deployment/s-sortie: volume node: hostPath",
        )
        self.shared(
            lambda r: r.pod.pop("automountServiceAccountToken"),
            "Deployment/s-sortie: automountServiceAccountToken is not false",
        )

    def test_the_fence_has_one_right(self):
        self.sidecar(
            lambda r: r.container("sortie-fence")["securityContext"]["capabilities"]["add"].append("SYS_ADMIN"),
            "Deployment/agent: initContainers: sortie-fence: capabilities: SYS_ADMIN is added",
        )

    def test_resources(self):
        self.shared(
            lambda r: r.container()["resources"].update(limits={"cpu": "1"}),
            "Deployment/s-sortie: containers: gateway: no memory limit",
            "Deployment/s-sortie: containers: gateway: a CPU limit, which is felt as slow tools",
        )

    def test_images_name_a_version(self):
        for image in ["registry.example.com:5000/sortie", "sortie:latest"]:
            self.shared(
                lambda r: r.container().update(image=image),
                f"Deployment/s-sortie: containers: gateway: image {image} names no version",
            )
        self.shared(lambda r: r.container().update(image="sortie@sha256:00"))

    def test_a_sidecar_has_no_hook(self):
        self.sidecar(
            lambda r: r.container().update(lifecycle={"preStop": {"sleep": {"seconds": 5}}}),
            "Deployment/agent: the sidecar has a preStop hook or a postStart one: it ends after the app by itself",
        )

    def test_the_fence_comes_first(self):
        self.sidecar(
            lambda r: r.pod["initContainers"].reverse(),
            "Deployment/agent: sortie-fence is not the first init container: gateway runs before it",
        )

    def test_the_app_has_a_uid_of_its_own(self):
        for user in [65532, None]:
            self.sidecar(
                lambda r: r.container("agent")["securityContext"].update(runAsUser=user),
                f"Deployment/agent: containers: agent: runs as UID {user}: the fence would not hold it",
            )
        self.sidecar(
            lambda r: r.container()["securityContext"].update(runAsUser=10001),
            "Deployment/agent: the gateway runs as UID 10001, not 65532",
        )

    def test_what_probes_ask(self):
        self.shared(
            lambda r: r.container()["livenessProbe"]["httpGet"].update(path="/readyz"),
            "Deployment/s-sortie: containers: gateway: livenessProbe asks for /readyz, not /livez",
        )
        self.shared(
            lambda r: r.container().pop("startupProbe"),
            "Deployment/s-sortie: containers: gateway: startupProbe asks for None, not /readyz",
        )

    def test_where_probes_ask(self):
        for port in ["api", 8477]:
            self.shared(
                lambda r: r.container()["readinessProbe"]["httpGet"].update(port=port),
                f"Deployment/s-sortie: containers: gateway: readinessProbe asks at port {port}, not telemetry",
            )
        self.shared(lambda r: r.container()["readinessProbe"]["httpGet"].update(port=9477))

    def test_a_configuration_that_is_not_found(self):
        def elsewhere(r):
            r.container()["volumeMounts"][0].update(mountPath="/config")

        self.shared(elsewhere, "Deployment/s-sortie: " + NOT_CHECKED)

        def removed(r):
            r.documents.remove(r.one("ConfigMap", "s-sortie-config"))

        self.refused(SHARED, removed, external=["ConfigMap/s-sortie-config"])

    def test_a_configuration_in_a_projected_volume(self):
        def spoil(r):
            config = r.volume("sortie-config").pop("configMap")
            r.volume("sortie-config")["projected"] = {"sources": [{"configMap": config}]}
            r.configure(lambda c: c["shutdown"].update(grace="25s"))

        self.shared(
            spoil,
            "Deployment/s-sortie: shutdown.grace is 25 s, and tool wms_stock may take 120 s: a restart cuts its calls off",
        )

    def test_a_configuration_under_another_key(self):
        def spoil(r):
            r.configure(lambda c: c["shutdown"].update(grace="25s"))
            data = r.one("ConfigMap", "s-sortie-config")["data"]
            data["main.yaml"] = data.pop("sortie.yaml")
            items = [{"key": key, "path": key.replace("main", "sortie")} for key in data]
            r.volume("sortie-config")["configMap"].update(items=items)

        self.shared(
            spoil,
            "Deployment/s-sortie: shutdown.grace is 25 s, and tool wms_stock may take 120 s: a restart cuts its calls off",
        )

    def test_a_grace_period_shorter_than_a_tool_s_timeout(self):
        self.sidecar(
            lambda r: r.pod.update(terminationGracePeriodSeconds=24),
            "Deployment/agent: terminationGracePeriodSeconds is 24: accept_for 0 s, grace 25 s and 5 s are 30",
            "Deployment/agent: terminationGracePeriodSeconds is 24, and tool lookup_order may take 20 s: 25 at least",
        )
        # wms_stock stands in an included file.
        self.shared(
            lambda r: r.configure(lambda c: c["shutdown"].update(grace="25s")),
            "Deployment/s-sortie: shutdown.grace is 25 s, and tool wms_stock may take 120 s: a restart cuts its calls off",
        )
        self.sidecar(
            lambda r: r.configure(lambda c: c["tools"][0].update(timeout="30s", profile="bare-v1")),
            "Deployment/agent: terminationGracePeriodSeconds is 30, and tool lookup_order may take 30 s: 35 at least",
            "Deployment/agent: shutdown.grace is 25 s, and tool lookup_order may take 30 s: a restart cuts its calls off",
        )

    def test_a_grace_period_that_is_not_set(self):
        self.shared(
            lambda r: r.pod.pop("terminationGracePeriodSeconds"),
            "Deployment/s-sortie: terminationGracePeriodSeconds is 30: accept_for 5 s, grace 120 s and 5 s are 130",
            "Deployment/s-sortie: terminationGracePeriodSeconds is 30, and tool wms_stock may take 120 s: 125 at least",
        )

    def test_listeners(self):
        self.shared(
            lambda r: r.configure(lambda c: c["listeners"]["telemetry"].update(address=":9464")),
            "Deployment/s-sortie: listeners.telemetry is at :9464, and the container's port telemetry is 9477",
        )
        self.shared(
            lambda r: r.configure(lambda c: c["listeners"]["api"].update(address="127.0.0.1:8477")),
            "Deployment/s-sortie: listeners.api is at 127.0.0.1:8477: it has to be on an address that a Service reaches",
        )

    def test_listeners_that_are_left_out(self):
        self.shared(
            lambda r: r.configure(lambda c: c["listeners"].pop("api")),
            "Deployment/s-sortie: listeners.api is at 127.0.0.1:8477: it has to be on an address that a Service reaches",
        )
        self.shared(lambda r: r.configure(lambda c: c["listeners"].pop("telemetry")))
        self.shared(lambda r: r.configure(lambda c: c["listeners"].update(api={"unix": {"path": "/run/sortie/api.sock"}})))

        def moved(r):
            r.configure(lambda c: c["listeners"].pop("telemetry"))
            r.container()["ports"][1].update(containerPort=9464)
            r.one("NetworkPolicy", "s-sortie")["spec"]["ingress"][1]["ports"][0].update(port=9464)

        self.shared(moved, "Deployment/s-sortie: listeners.telemetry is at :9477, and the container's port telemetry is 9464")

    def test_secrets_are_mounted(self):
        self.shared(
            lambda r: r.configure(lambda c: c["auth"]["keys"][0].update(key={"file": "/run/keys/support"})),
            "Deployment/s-sortie: the configuration reads /run/keys/support, and nothing is mounted there",
        )

    def test_the_configuration_is_checked(self):
        program = os.environ["SORTIE"]
        self.refused(SHARED, lambda r: None, program=program)
        self.refused(
            SHARED,
            lambda r: r.configure(lambda c: c["egress"].update(private_cidrs=["10.0.0.0/77"])),
            "ConfigMap/s-sortie-config: sortie check: sortie.yaml:33:5: egress.private_cidrs[0]: `10.0.0.0/77` is not a range of "
            "addresses; write one such as `10.20.0.0/16` or `10.20.1.5/32`",
            program=program,
        )


class Rendered(unittest.TestCase):
    """What values make of the chart."""

    def test_name_servers_beside_the_cluster_s_and_their_ports(self):
        for name in ["s-sortie", "s-sortie-clients"]:
            egress = Changed(SHARED).one("NetworkPolicy", name)["spec"]["egress"]
            rule = next(one for one in egress if {"port": 53, "protocol": "UDP"} in one["ports"])
            self.assertEqual(rule["to"][1:], [{"ipBlock": {"cidr": "169.254.20.10/32"}}])
            self.assertEqual(
                rule["ports"], [{"port": port, "protocol": protocol} for port in [53, 5353] for protocol in ["UDP", "TCP"]]
            )


class Command(unittest.TestCase):
    def run_with(self, documents, *more):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "made.yaml")
            with open(path, "w", encoding="utf-8") as file:
                yaml.safe_dump_all(documents, file)
            script = pathlib.Path(__file__).with_name("policies.py")
            ran = subprocess.run([sys.executable, script, *more, path], capture_output=True, text=True)
            return ran.returncode, ran.stdout.replace(folder, "FOLDER") + ran.stderr.replace(folder, "FOLDER")

    def test_it_says_what_is_wrong_and_exits_1(self):
        pod = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"automountServiceAccountToken": False, "containers": []}}
        self.assertEqual(self.run_with([pod]), (0, ""))
        pod["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "s"}}]
        self.assertEqual(
            self.run_with([pod]), (1, "FOLDER/made.yaml: Pod/a: volume v: Secret s is not here, and not named as external\n")
        )
        self.assertEqual(self.run_with([pod], "--external", "Secret/s"), (0, ""))

    def test_a_rendering_of_nothing_is_no_good_one(self):
        self.assertEqual(self.run_with([None]), (1, "FOLDER/made.yaml: no document\n"))


if __name__ == "__main__":
    unittest.main()
