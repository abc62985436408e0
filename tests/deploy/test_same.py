"""What same.py sees, and what it does not."""

import copy
import unittest

from same import differences

CONFIG = {"kind": "ConfigMap", "metadata": {"name": "sortie-config", "labels": {"helm.sh/chart": "a"}}, "data": {"a": "b\n"}}
POD = {
    "kind": "Deployment",
    "metadata": {"name": "sortie", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
    "spec": {"template": {"spec": {"volumes": [{"name": "c", "configMap": {"name": "sortie-config"}}]}}},
}


def made():
    """As kustomize makes it."""
    config, pod = copy.deepcopy(CONFIG), copy.deepcopy(POD)
    config["metadata"] = {"name": "sortie-config-bg92b6c47k", "namespace": "sortie"}
    config["data"] = {"a": "b"}
    pod["metadata"] = {"name": "sortie", "namespace": "sortie"}
    pod["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "sortie-config-bg92b6c47k"
    return config, pod


class Same(unittest.TestCase):
    def check(self, helm, kustomize, *expected, but=()):
        self.assertEqual(list(differences(helm, kustomize, but)), list(expected))

    def test_generated_names_and_helm_s_labels_do_not_count(self):
        self.check([CONFIG, POD], made())

    def test_another_value_is_seen(self):
        config, pod = made()
        pod["spec"]["template"]["spec"]["volumes"][0]["name"] = "d"
        config["data"]["a"] = "c"
        self.check(
            [CONFIG, POD],
            [config, pod],
            "ConfigMap/sortie-config.data.a: Helm has 'b', kustomize 'c'",
            "Deployment/sortie.spec.template.spec.volumes[0].name: Helm has 'c', kustomize 'd'",
        )

    def test_a_missing_object_is_seen(self):
        config, pod = made()
        self.check([CONFIG, POD], [pod], "ConfigMap/sortie-config: kustomize has none")
        self.check([POD], [config, pod], "ConfigMap/sortie-config: Helm has none")
        self.check([POD], [config, pod], but=["ConfigMap/sortie-config"])


if __name__ == "__main__":
    unittest.main()
