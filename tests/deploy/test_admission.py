"""The admission policy's expressions, evaluated as an API server would, with pods that it has to refuse and to let in.

No API server runs here: the expressions are those of the file, and CEL is that of the package `cel-python`.
EXAMPLE_APP is the rendering of the chart example-app, OPENED one of the chart sortie whose fence opens something.
"""

import copy
import os
import pathlib
import unittest

import celpy
import yaml

POLICY = pathlib.Path(__file__).resolve().parents[2] / "deploy/admission/no-gateway-uid.yaml"
UID = "runAsUser has to be set, and be neither 0 nor 65532, which is the gateway: "
GATEWAY_RIGHTS = "the gateway drops ALL capabilities, adds none, is not privileged, and has allowPrivilegeEscalation false"
FENCE_ENV = (
    "sortie-fence lets UID 65532 out: its env is GATEWAY_UID, which is 65532, APP_DNS and APP_TCP, and there is no envFrom"
)
FENCE_OPEN = (
    "APP_DNS and APP_TCP of sortie-fence open what fence.appDns and fence.appTcp list where this policy was installed, "
    "and nothing else"
)
FENCE_DNS = "with APP_DNS resolv.conf, dnsConfig names no nameservers: they would be open to all"
MOUNTS = (
    "the gateway mounts volumes at or below /etc/sortie, /run/secrets, /run/sortie, /tmp, /var/lib/sortie and "
    "/var/run/secrets alone, and none below another"
)
FENCE_MOUNTS = "sortie-fence has no volumeMounts but its service account's"
NO_OTHER_PROGRAM = (
    "gateway and sortie-fence have no lifecycle, no probe by exec, no volumeDevices, "
    "and no terminationMessagePath of their own"
)
TOKEN = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
FENCE_FIRST = "sortie-fence is the first init container and has no restartPolicy: the next one starts when the rules are set"


def rights(containers):
    return (
        f"beside the Sortie sidecar, {containers} drop ALL capabilities, add none but NET_BIND_SERVICE, "
        "and have allowPrivilegeEscalation false"
    )


def join(values, separator):
    """Of Kubernetes' CEL library."""
    return celpy.celtypes.StringType(str(separator).join(str(value) for value in values))


def split(text, separator):
    """Of Kubernetes' CEL library."""
    return celpy.celtypes.ListType(celpy.celtypes.StringType(part) for part in str(text).split(str(separator)))


class Policy:
    def __init__(self, spec):
        self.spec = spec
        self.environment = celpy.Environment()

    def evaluate(self, expression, bound):
        functions = {"join": join, "split": split}
        program = self.environment.program(self.environment.compile(expression), functions=functions)
        return program.evaluate(bound)

    def refusals(self, pod):
        """What the API server would say of a pod; None where the policy is not about it."""
        bound = {"object": celpy.json_to_cel(pod), "variables": celpy.celtypes.MapType()}
        if not all(self.evaluate(one["expression"], bound) for one in self.spec["matchConditions"]):
            return None
        for one in self.spec["variables"]:
            name = celpy.celtypes.StringType(one["name"])
            bound["variables"][name] = self.evaluate(one["expression"], bound)
        said = []
        for one in self.spec["validations"]:
            if not self.evaluate(one["expression"], bound):
                text = one.get("message") or str(self.evaluate(one["messageExpression"], bound))
                said.append(text)
        return said


def example():
    documents = yaml.safe_load_all(pathlib.Path(os.environ["EXAMPLE_APP"]).read_text())
    template = next(one for one in documents if one["kind"] == "Deployment")["spec"]["template"]
    return {"apiVersion": "v1", "kind": "Pod", **template}


def policies(path):
    """The policy and its binding, of a rendering with more in it."""
    documents = [one for one in yaml.safe_load_all(path.read_text()) if one]
    kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    return [next(one for one in documents if one["kind"] == kind) for kind in kinds]


class Admission(unittest.TestCase):
    def setUp(self):
        policy, binding = policies(POLICY)
        self.assertEqual(binding["spec"]["policyName"], policy["metadata"]["name"])
        self.policy = Policy(policy["spec"])
        self.pod = copy.deepcopy(example())
        self.app = self.pod["spec"]["containers"][0]
        self.security = self.app["securityContext"]

    def refused(self, *sentences):
        self.assertEqual(self.policy.refusals(self.pod), list(sentences))

    def test_the_example_is_let_in(self):
        self.refused()

    def test_a_pod_without_the_sidecar_is_not_looked_at(self):
        del self.pod["metadata"]["labels"]["sortie/sidecar"]
        del self.pod["spec"]["initContainers"]
        self.security["runAsUser"] = 65532
        self.assertIsNone(self.policy.refusals(self.pod))

    def test_a_pod_whose_label_was_left_out_is_looked_at(self):
        del self.pod["metadata"]["labels"]
        self.security["runAsUser"] = 65532
        self.refused(UID + "agent")

    def test_a_pod_that_ends_is_not_looked_at(self):
        self.security["runAsUser"] = 65532
        self.refused(UID + "agent")
        self.pod["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
        self.assertIsNone(self.policy.refusals(self.pod))

    def test_the_app_as_the_gateway_or_root(self):
        for user in [65532, 0]:
            self.security["runAsUser"] = user
            self.refused(UID + "agent")

    def test_the_app_with_the_image_s_uid(self):
        del self.security["runAsUser"]
        self.refused(UID + "agent")
        self.pod["spec"]["securityContext"] = {"runAsUser": 10001}
        self.refused()
        self.pod["spec"]["securityContext"] = {"runAsUser": 65532}
        self.refused(UID + "agent")

    def test_an_init_container_as_the_gateway(self):
        one = copy.deepcopy(self.app) | {"name": "migrate"}
        self.pod["spec"]["initContainers"].append(one)
        self.refused()
        one["securityContext"]["runAsUser"] = 65532
        self.refused(UID + "migrate")

    def test_a_debugging_container(self):
        self.pod["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox:1.37"}]
        self.refused(UID + "debugger", rights("ephemeralContainers"))

    def test_rights_by_which_the_fence_is_taken_down(self):
        spoilt = [
            {"privileged": True},
            {"allowPrivilegeEscalation": True},
            {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}},
            {"capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]}},
            {"capabilities": {"add": ["NET_BIND_SERVICE"]}},
        ]
        for change in spoilt:
            self.app["securityContext"] = {**self.security, **change}
            self.refused(rights("containers"))
        self.app["securityContext"] = {**self.security, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}
        self.refused()

    def test_another_image_under_our_names(self):
        for container in self.pod["spec"]["initContainers"]:
            image, container["image"] = container["image"], "evil:1.0"
            self.refused("the names gateway and sortie-fence are for Sortie's own images")
            container["image"] = image.partition(":")[0] + "@sha256:00"
            self.refused()

    def test_another_command_in_our_images(self):
        fence, gateway = self.pod["spec"]["initContainers"]
        for container, key in [(fence, "command"), (fence, "args"), (gateway, "command")]:
            container[key] = ["true"]
            self.refused("gateway and sortie-fence run what their images say")
            del container[key]
        self.refused()

    def test_another_program_in_our_containers(self):
        run = {"exec": {"command": ["/tmp/busybox", "nc"]}}
        spoilt = [
            {"lifecycle": {"postStart": run}},
            {"lifecycle": {"preStop": run}},
            *({probe: run} for probe in ["livenessProbe", "readinessProbe", "startupProbe"]),
            {"terminationMessagePath": "/fence.sh"},
            {"volumeDevices": [{"name": "disk", "devicePath": "/fence.sh"}]},
        ]
        for index in range(2):
            right = self.pod["spec"]["initContainers"][index]
            for change in spoilt:
                self.pod["spec"]["initContainers"][index] = right | change
                self.refused(NO_OTHER_PROGRAM)
            # The API server writes it where a manifest does not.
            self.pod["spec"]["initContainers"][index] = right | {"terminationMessagePath": "/dev/termination-log"}
            self.refused()

    def test_a_volume_over_the_fence_s_files(self):
        fence = self.pod["spec"]["initContainers"][0]
        script = {"name": "script", "mountPath": "/fence.sh", "subPath": "fence.sh"}
        for wrong in [script, {"name": "script", "mountPath": "/bin"}, TOKEN | {"mountPath": TOKEN["mountPath"] + "/.."}]:
            fence["volumeMounts"] = [TOKEN, wrong]
            self.refused(FENCE_MOUNTS)
        fence["volumeMounts"] = [TOKEN]
        self.refused()

    def test_a_volume_over_the_gateway_s_program(self):
        gateway = self.pod["spec"]["initContainers"][1]
        right = gateway["volumeMounts"]
        self.assertIn("/etc/sortie", [one["mountPath"] for one in right])

        def mounted(*paths):
            gateway["volumeMounts"] = [*right, TOKEN, *({"name": "more", "mountPath": path} for path in paths)]

        outside = ["/sortie", "/", "//sortie", "/etc", "/etc/ssl/certs", "/etc/sortie2", "/tmpx", "/run", "/dev/x", "sortie"]
        around = ["/tmp/..", "/tmp/../sortie", "/run/secrets/../../sortie", "/tmp/./x", "/tmp/", "/tmp//x"]
        for path in [*outside, *around]:
            mounted(path)
            self.refused(MOUNTS)
        # The outer one may have a link to `/sortie`.
        mounted("/tmp", "/tmp/link")
        self.refused(MOUNTS)
        mounted("/tmp", "/run/sortie", "/run/secrets/kubernetes.io", "/run/secrets/a..b")
        self.refused()
        del gateway["volumeMounts"]
        self.refused()

    def test_the_gateway_with_another_uid(self):
        self.pod["spec"]["initContainers"][1]["securityContext"]["runAsUser"] = 10001
        self.refused("the gateway runs as UID 65532")

    def test_a_fence_that_lets_another_uid_through(self):
        fence = self.pod["spec"]["initContainers"][0]
        right = fence["env"]
        self.assertIn({"name": "GATEWAY_UID", "value": "65532"}, right)
        source = {"configMapKeyRef": {"name": "app", "key": "uid"}}
        for wrong in [{"value": "10001"}, {"value": ""}, {}, {"valueFrom": source}]:
            # Of two with one name the last counts.
            fence["env"] = [*right, {"name": "GATEWAY_UID", **wrong}]
            self.refused(FENCE_ENV)
        fence["env"] = right
        fence["envFrom"] = [{"configMapRef": {"name": "app"}}]
        self.refused(FENCE_ENV)
        # The script's own is 65532.
        del fence["env"], fence["envFrom"]
        self.refused()

    def test_another_variable_of_the_fence(self):
        fence = self.pod["spec"]["initContainers"][0]
        right = fence["env"]
        for name in ["PATH", "LD_PRELOAD", "app_tcp"]:
            fence["env"] = [*right, {"name": name, "value": TOKEN["mountPath"]}]
            self.refused(FENCE_ENV)

    def opened(self, name, wrong, right):
        """The fence with this variable once more."""
        fence = self.pod["spec"]["initContainers"][0]
        others = [one for one in fence["env"] if one["name"] != name]
        source = {"configMapKeyRef": {"name": "app", "key": "open"}}
        for change in [{"valueFrom": source}, *({"value": value} for value in wrong)]:
            fence["env"] = [*others, {"name": name, "value": right[0]}, {"name": name, **change}]
            self.refused(FENCE_OPEN)
        # The API server has nothing where a value is empty.
        for change in [{}, *({"value": value} for value in right)]:
            fence["env"] = [*others, {"name": name, **change}]
            self.refused()
        fence["env"] = others
        self.refused()

    def test_what_a_pod_opens_by_itself(self):
        targets = ["0.0.0.0/1:443", "0.0.0.0/1:443 128.0.0.0/1:443", "[::]/0:443", "$(GATEWAY_UID)", "none", "\t"]
        self.opened("APP_TCP", targets, ["", " "])
        self.opened("APP_DNS", ["192.0.2.1", "resolv.conf 192.0.2.1", "none\n192.0.2.1"], ["resolv.conf", "none", ""])

    def test_what_the_chart_opens(self):
        self.policy = Policy(policies(pathlib.Path(os.environ["OPENED"]))[0]["spec"])
        fence = self.pod["spec"]["initContainers"][0]
        fence["env"] = [one for one in fence["env"] if one["name"] == "GATEWAY_UID"]
        database, vectors = "10.20.0.0/16:5432", "[fd00::/8]:6333"
        wrong = ["10.20.0.0/16:5433", f"{database} 10.0.0.0/8:443", f"{database}\t{vectors}"]
        self.opened("APP_TCP", wrong, [database, vectors, f"{database} {vectors}", ""])
        self.opened("APP_DNS", ["resolv.conf", "192.0.2.1"], ["10.96.0.10", "10.96.0.10 fd00::a", "none"])

    def test_name_servers_of_the_pod_s_own(self):
        fence = self.pod["spec"]["initContainers"][0]
        self.assertIn({"name": "APP_DNS", "value": "resolv.conf"}, fence["env"])
        self.pod["spec"]["dnsConfig"] = {"options": [{"name": "ndots", "value": "1"}]}
        self.refused()
        self.pod["spec"]["dnsConfig"]["nameservers"] = ["192.0.2.1"]
        self.refused(FENCE_DNS)
        fence["env"] = [one for one in fence["env"] if one["name"] != "APP_DNS"]
        self.refused()

    def test_what_runs_before_the_fence(self):
        fence, gateway = self.pod["spec"]["initContainers"]
        one = copy.deepcopy(self.app) | {"name": "early"}
        for early in [one, one | {"restartPolicy": "Always"}]:
            self.pod["spec"]["initContainers"] = [early, fence, gateway]
            self.refused(FENCE_FIRST)
            self.pod["spec"]["initContainers"] = [fence, early, gateway]
            self.refused()

    def test_a_fence_that_nobody_waits_for(self):
        fence = self.pod["spec"]["initContainers"][0]
        fence["restartPolicy"] = "Always"
        self.refused(FENCE_FIRST)

    def test_the_sidecar_without_the_fence(self):
        del self.pod["spec"]["initContainers"][0]
        self.refused()
        self.pod["spec"]["initContainers"].insert(0, copy.deepcopy(self.app) | {"name": "early"})
        self.refused()

    def test_rights_of_the_gateway(self):
        gateway = self.pod["spec"]["initContainers"][1]
        security = gateway["securityContext"]
        spoilt = [
            {"privileged": True},
            {"allowPrivilegeEscalation": True},
            {"allowPrivilegeEscalation": None},
            {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}},
            {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
            {"capabilities": {"drop": ["NET_RAW"]}},
            {"capabilities": None},
        ]
        for change in spoilt:
            changed = {**security, **change}
            # The API server has nothing where a manifest says null.
            gateway["securityContext"] = {key: value for key, value in changed.items() if value is not None}
            self.refused(GATEWAY_RIGHTS)
        gateway["securityContext"] = security | {"privileged": False}
        self.refused()
        del gateway["securityContext"]
        self.refused("the gateway runs as UID 65532", GATEWAY_RIGHTS)

    def test_the_node_s_network(self):
        self.pod["spec"]["hostNetwork"] = True
        self.refused("a pod with the Sortie sidecar has a network of its own, so no hostNetwork")


if __name__ == "__main__":
    unittest.main()
