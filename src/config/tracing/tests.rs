//! What is read of `tracing`, and of the environment.

use super::*;
use crate::config::context::{Environment, Source, SourceError};
use crate::config::parse::parse;

const KEY: &str = "otlp-canary-7Hq2xV";

struct Compiled {
    tracing: Option<Tracing>,
    warnings: Vec<String>,
}

fn try_compile(section: &str, variables: &[(&str, &str)]) -> Result<Compiled, String> {
    let lookup = |source: &Source| match source {
        Source::Env(name) if name == "KEY" => Ok(Secret::new(KEY)),
        _ => Err(SourceError::Missing),
    };
    let find = |name: &str| {
        let found = variables.iter().find(|(one, _)| *one == name);
        found.map(|(_, value)| Secret::new(*value))
    };
    let mut environment = Environment::bare(&lookup, 0);
    environment.open_telemetry = Variables::read(find);
    let text = format!("version: 1\nauth: none\n{section}\n");
    let snapshot = parse("f", &text, &environment).map_err(|found| found.to_string())?;
    let warnings = snapshot.warnings.iter().map(ToString::to_string).collect();
    Ok(Compiled { tracing: snapshot.tracing, warnings })
}

#[track_caller]
fn compile(section: &str, variables: &[(&str, &str)]) -> Compiled {
    try_compile(section, variables).unwrap_or_else(|errors| panic!("{errors}"))
}

#[track_caller]
fn check_endpoint(section: &str, variables: &[(&str, &str)], expected: Option<&str>) {
    let compiled = compile(section, variables);
    let endpoint = compiled.tracing.map(|tracing| tracing.endpoint.to_string());
    assert_eq!(endpoint.as_deref(), expected, "{section} {variables:?}");
    assert_eq!(compiled.warnings, Vec::<String>::new());
}

const ON: &str = "tracing: {otlp: {endpoint: 'http://c.example.com:4318'}}";
const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b.example.com:4318/");
const WHOLE: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://w.example.com:4318/t");

#[test]
fn nothing_is_traced_unless_somebody_says_where_spans_go() {
    check_endpoint("", &[], None);
    check_endpoint("tracing: {otlp: {endpoint: null, sample: 0.05}}", &[], None);
    check_endpoint("", &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], None);
}

#[test]
fn the_file_counts_before_the_environment_and_the_whole_address_before_the_base() {
    check_endpoint("", &[BASE], Some("http://b.example.com:4318/v1/traces"));
    check_endpoint("", &[BASE, WHOLE], Some("http://w.example.com:4318/t"));
    check_endpoint(ON, &[BASE, WHOLE], Some("http://c.example.com:4318/v1/traces"));
    let own = "tracing: {otlp: {endpoint: 'https://c.example.com/otlp?tenant=7'}}";
    check_endpoint(own, &[], Some("https://c.example.com/otlp?tenant=7"));
}

#[test]
fn the_kit_is_disabled_whatever_the_file_says() {
    check_endpoint(ON, &[BASE, ("OTEL_SDK_DISABLED", "True")], None);
    check_endpoint(ON, &[("OTEL_SDK_DISABLED", "0")], Some("http://c.example.com:4318/v1/traces"));
}

/// The endpoint may be there for metrics alone.
#[test]
fn the_environment_may_want_no_spans() {
    let exporter = |value| ("OTEL_TRACES_EXPORTER", value);
    check_endpoint("", &[BASE, exporter("none")], None);
    check_endpoint(ON, &[BASE, exporter("none")], Some("http://c.example.com:4318/v1/traces"));
    let base = compile("", &[BASE]).tracing.map(|tracing| tracing.endpoint.to_string());
    let both = compile("", &[BASE, exporter("console, otlp")]).tracing;
    assert_eq!(both.map(|tracing| tracing.endpoint.to_string()), base);
}

#[track_caller]
fn check_sampling(section: &str, sampler: &str, argument: &str, ratio: f64, heeds_parent: bool) {
    let variables = [BASE, ("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)];
    let tracing = compile(section, &variables).tracing.expect("it is on");
    assert_eq!(tracing.sampling, Sampling { ratio, heeds_parent }, "{sampler} {argument}");
}

#[test]
fn the_sampler_is_the_files_then_the_environments() {
    check_sampling("", "", "", 0.05, true);
    check_sampling("", "", "0.5", 0.05, true);
    check_sampling("", "always_on", "", 1.0, false);
    check_sampling("", "always_off", "", 0.0, false);
    check_sampling("", "traceidratio", "0.25", 0.25, false);
    check_sampling("", "traceidratio", "", 1.0, false);
    check_sampling("", "parentbased_always_on", "", 1.0, true);
    check_sampling("", "parentbased_always_off", "", 0.0, true);
    check_sampling("", "parentbased_traceidratio", "0.25", 0.25, true);
    check_sampling("tracing: {otlp: {sample: 1}}", "always_off", "", 1.0, true);
}

#[track_caller]
fn check_warning(name: &str, value: &str, expected: &str) {
    let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
    let first = if name == sampler.0 { (name, value) } else { sampler };
    let compiled = compile("", &[(name, value), BASE, first]);
    let [warning] = &compiled.warnings[..] else { panic!("{:?}", compiled.warnings) };
    assert!(warning.contains(&format!("variable `{name}` is left out: ")), "{warning}");
    assert!(warning.contains(expected), "{warning}");
    assert!(!warning.contains(KEY), "{warning}");
}

#[test]
fn a_variable_that_is_wrong_is_left_out_with_a_warning() {
    check_warning("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector", "no scheme");
    check_warning("OTEL_TRACES_EXPORTER", "zipkin", "otlp");
    check_warning("OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on");
    check_warning("OTEL_TRACES_SAMPLER_ARG", "2", "from 0 to 1");
    check_warning("OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1");
    check_warning("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf");
    check_warning("OTEL_EXPORTER_OTLP_HEADERS", KEY, "name=value");
    check_warning("OTEL_EXPORTER_OTLP_HEADERS", &format!("a b={KEY}"), "header name");
    check_warning("OTEL_RESOURCE_ATTRIBUTES", "=a", "name=value");
}

#[track_caller]
fn check_error(otlp: &str, expected: &str) {
    let section = format!("tracing:\n  otlp:\n    {otlp}");
    let errors = try_compile(&section, &[]).map(|_| ()).expect_err(otlp);
    assert!(errors.contains(expected), "{errors}");
    assert!(!errors.contains(KEY), "{errors}");
}

#[test]
fn what_is_wrong_in_the_file_is_told_with_its_place() {
    check_error("endpoint: collector:4318", "f:5:15: tracing.otlp.endpoint: ");
    check_error("endpoint: ftp://c.example.com", "the scheme must be https");
    check_error("sample: 1.5", "f:5:13: tracing.otlp.sample: must be from 0 to 1, not 1.5");
    check_error("sample: -0.1", "must be from 0 to 1");
    check_error("capture: some", "tracing.otlp.capture: ");
    check_error("headers: {Host: {env: KEY}}", "`Host` is not a header that an export may have");
    check_error("headers: {Authorization: null}", "has no value");
    check_error("headers: {Authorization: {}}", "names no secret");
}

#[test]
fn headers_are_references_or_the_environments() {
    let section = "tracing: {otlp: {endpoint: 'http://c.example.com:4318', headers: {Authorization: \
                   {env: KEY, prefix: 'Bearer '}}}}";
    let told = |compiled: Compiled| {
        let headers = compiled.tracing.expect("it is on").headers;
        assert!(!format!("{headers:?}").contains(KEY));
        let told = headers.iter().map(|one| {
            let value = one.value().to_str().expect("ASCII").to_owned();
            (one.spelling().to_owned(), value)
        });
        told.collect::<Vec<_>>()
    };
    let own = [("Authorization".to_owned(), format!("Bearer {KEY}"))];
    let variable = ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, x-other=c=d,");
    assert_eq!(told(compile(section, &[variable])), own);
    let others = [("x-key", "a b"), ("x-other", "c=d")];
    let others = others.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(told(compile(ON, &[variable])), others);
    let of_traces = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-key=e");
    let only = [("x-key".to_owned(), "e".to_owned())];
    assert_eq!(told(compile(ON, &[variable, of_traces])), only);
}

#[test]
fn a_header_that_cannot_be_read_is_left_out_with_a_warning() {
    let section =
        "tracing: {otlp: {endpoint: 'http://c.example.com:4318', headers: {x-key: {file: gone}}}}";
    let compiled = compile(section, &[]);
    assert!(compiled.tracing.expect("it is on").headers.is_empty());
    let [warning] = &compiled.warnings[..] else { panic!("{:?}", compiled.warnings) };
    assert!(warning.contains("spans are sent without this header"), "{warning}");
}

#[test]
fn the_resource_has_the_services_name() {
    let resource = |variables: &[(&str, &str)]| {
        let resource = compile(ON, variables).tracing.expect("it is on").resource;
        let told = resource.iter().map(|(name, value)| format!("{name}={value}"));
        told.collect::<Vec<_>>().join(" ")
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(resource(&[]), format!("service.name=sortie service.version={version}"));
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,k8s.pod.name=p%2C1");
    let expected = format!("k8s.pod.name=p,1 service.name=a service.version={version}");
    assert_eq!(resource(&[attributes]), expected);
    let name = ("OTEL_SERVICE_NAME", "gateway");
    let expected = format!("k8s.pod.name=p,1 service.name=gateway service.version={version}");
    assert_eq!(resource(&[attributes, name]), expected);
}
