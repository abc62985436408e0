//! The description is that of the code: routes, words and numbers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::gateway::shadow_report::MAX_DAYS;
use crate::model::approval::{ApprovalKind, ApprovalStatus};
use crate::model::outcome::{FailureCode, Phase};
use crate::policy::condition::Operator;
use crate::policy::export::Provider;
use crate::serve::api;
use crate::serve::calls::LONGEST_WAIT_MS;
use crate::serve::http::ApiCode;

fn described() -> Value {
    serde_json::from_str(&text()).expect("JSON")
}

/// Each method of each path, with what stands there.
fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().expect("paths").iter();
    let operations = paths.flat_map(|(path, item)| {
        let methods = item.as_object().expect("a path").iter();
        // What stands there besides is shared by the methods.
        let methods = methods.filter(|(method, _)| *method != "parameters");
        methods.map(move |(method, one)| (format!("{} {path}", method.to_uppercase()), one))
    });
    operations.collect()
}

#[test]
fn it_is_read_without_a_fault() {
    let (document, faults) = Document::parse(WRITTEN);
    assert!(faults.is_empty() && document.is_some(), "{faults:?}");
    let document = described();
    assert_eq!(document["openapi"], "3.1.1");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

/// The router is made of these routes and of no others, so both ways are compared here.
#[test]
fn routes_and_descriptions_are_the_same() {
    let document = described();
    let described: BTreeSet<String> =
        operations(&document).into_iter().map(|(route, _)| route).collect();
    let routes = api::routes();
    let routed: BTreeSet<String> =
        routes.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(routed.len(), routes.len(), "each route is there once");
    assert_eq!(routed, described);
}

#[test]
fn every_route_says_who_may_ask_and_how_asking_goes_wrong() {
    let document = described();
    for (route, operation) in operations(&document) {
        let statuses = operation["responses"].as_object().expect("responses");
        let has = |status: &str| statuses.contains_key(status);
        let is_open = operation["security"] == json!([]);
        assert_eq!(is_open, route == "GET /openapi.json", "{route}");
        assert!(is_open || (has("401") && has("403")), "{route}");
        assert!(has("400") && has("431") && has("500"), "{route}");
        let takes_a_body = operation.get("requestBody").is_some();
        for status in ["408", "413", "415"] {
            assert_eq!(has(status), takes_a_body, "{route} {status}");
        }
    }
}

/// The words of a schema's enumeration.
fn check<'a>(schema: &str, words: impl IntoIterator<Item = &'a str>) {
    let document = described();
    let listed = document.pointer(schema).and_then(Value::as_array);
    let listed = listed.unwrap_or_else(|| panic!("{schema} is a list"));
    let listed: BTreeSet<&str> = listed.iter().filter_map(Value::as_str).collect();
    assert_eq!(listed, words.into_iter().collect(), "{schema}");
}

#[test]
fn words_are_those_of_the_code() {
    check("/components/schemas/ApiCode/enum", ApiCode::ALL.map(ApiCode::as_str));
    check("/components/schemas/FailureCode/enum", FailureCode::ALL.iter().map(|one| one.as_str()));
    check("/components/schemas/CallStatus/enum", Phase::ALL.map(Phase::as_str));
    let statuses = ApprovalStatus::ALL.iter().map(|one| one.as_str());
    check("/components/schemas/ApprovalStatus/enum", statuses);
    let kinds = ApprovalKind::ALL.iter().map(|one| one.as_str());
    check("/components/schemas/ApprovalFields/properties/kind/enum", kinds);
    check("/components/schemas/Operator/enum", Operator::ALL.map(Operator::as_str));
    check("/components/parameters/Format/schema/enum", Provider::ALL.map(Provider::as_str));
}

#[test]
fn every_code_is_described_with_its_status() {
    let document = described();
    let text = document.to_string();
    for code in ApiCode::ALL {
        let status = code.status();
        let is_told = operations(&document).into_iter().any(|(_, operation)| {
            let response = &operation["responses"][status.as_str()];
            let response = match response["$ref"].as_str() {
                Some(place) => document.pointer(&place[1..]).expect("a response"),
                None => response,
            };
            let mut shown = response.to_string();
            if let Some(place) = response.pointer("/content/application~1json/schema/$ref") {
                let place = place.as_str().expect("a place");
                shown += &document.pointer(&place[1..]).expect("a schema").to_string();
            }
            shown.contains(&format!("\"{}\"", code.as_str()))
        });
        // No path has this one: it is about methods that a path does not have.
        assert_eq!(is_told, code != ApiCode::MethodNotAllowed, "{}", code.as_str());
    }
    assert!(text.contains("`Allow`"));
}

#[test]
fn numbers_are_those_of_the_code() {
    let document = described();
    let at = |pointer: &str| document.pointer(pointer).and_then(Value::as_u64);
    assert_eq!(at("/components/schemas/Call/properties/wait_ms/maximum"), Some(LONGEST_WAIT_MS));
    assert_eq!(at("/components/parameters/Days/schema/maximum"), Some(MAX_DAYS));
}
