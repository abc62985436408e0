//! Which schemes a profile can describe, and what is said about those that are unsafe or misspelt.

use super::*;

fn scheme(signed: &str, value: &str, separator: Option<&str>) -> SchemeText {
    SchemeText {
        signed: signed.into(),
        key: KeyEncoding::Text,
        digest: DigestText::Hex,
        value: value.into(),
        separator: separator.map(str::to_owned),
    }
}

#[track_caller]
fn check_good(signed: &str, value: &str, separator: Option<&str>) {
    let compiled = scheme(signed, value, separator).compile();
    assert!(compiled.is_ok(), "{signed} {value}: {:?}", compiled.err());
}

#[track_caller]
fn check_fault(signed: &str, value: &str, separator: Option<&str>, fault: &str) {
    let faults = scheme(signed, value, separator).compile().expect_err(signed);
    let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains(fault), "{texts:?}");
}

#[test]
fn known_schemes_can_be_described() {
    check_good("{t}.{body}", "t={t},v1={digest}", Some(","));
    check_good("{id}.{t}.{body}", "v1,{digest}", Some(" "));
    check_good("{body}", "sha256={digest}", None);
    check_good("{body}", "{digest}", None);
    check_good("v0:{t}:{body}", "v0={digest}", None);
    check_good("{t}.{body}", "alg=hmac;t={t};sig=:{digest}:", Some(";"));
}

#[test]
fn the_signed_text_must_hold_the_body_and_keep_its_slots_apart() {
    let value = "sha256={digest}";
    check_fault("", value, None, "signature.signed: the signed text must end with {body}");
    check_fault("{t}.", value, None, "must end with {body}");
    check_fault("{body}.{t}", value, None, "must end with {body}");
    check_fault("{t}{body}", value, None, "a separator such as `.` must follow {t} and {id}");
    check_fault("{id}{t}.{body}", value, None, "a separator");
    check_fault("{t}0{body}", value, None, "a separator");
    check_fault("{t}_{body}", value, None, "a separator");
    check_fault("{body}{body}", value, None, "at most once");
    check_fault(
        "{boddy}",
        value,
        None,
        "`{boddy}` is no slot here; there are {t}, {id} and {body}",
    );
    check_fault("{t}.{body", value, None, "never closed");
}

#[test]
fn the_value_must_hold_one_digest_and_parts_that_can_be_told_apart() {
    let signed = "{t}.{body}";
    let comma = Some(",");
    check_fault(signed, "t={t}", comma, "signature.value: {digest} must stand there once");
    check_fault(signed, "v1={digest},v2={digest}", comma, "{digest} must stand there once");
    check_fault(signed, "{t},{digest}", comma, "a beginning of its own");
    check_fault(signed, "v={t},v1={digest},v12", Some(";"), "not both");
    check_fault(signed, "v1={t},v1={digest}", comma, "a beginning of its own");
    check_fault(signed, "t={t},v1={digest}", None, "a `separator` makes them two parts");
    check_fault(
        signed,
        "t={T},v1={digest}",
        comma,
        "`{T}` is no slot here; there are {t} and {digest}",
    );
    check_fault(signed, "v1=\r\n{digest}", None, "visible ASCII");
    check_fault("{body}", "t={t},v1={digest}", comma, "shown but not signed");
}

#[test]
fn a_separator_must_not_occur_in_a_digest() {
    for separator in ["", "a", "=", "+", "/", "\n", "é", "0", ", v1"] {
        check_fault(
            "{body}",
            "{digest}",
            Some(separator),
            "signature.separator: must be a space or punctuation",
        );
    }
}

#[test]
fn all_faults_are_said_at_once() {
    let faults = scheme("{t}{body}", "t", Some("x")).compile().unwrap_err();
    let paths: Vec<_> = faults.into_iter().map(|fault| fault.path).collect();
    assert_eq!(paths, ["signature.signed", "signature.separator", "signature.value"]);
}
