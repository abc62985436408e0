//! Tests of what bounds the judging of arguments: the stack, the work, and the digits of numbers.

use super::*;
use crate::model::json::MAX_DEPTH;

/// Checks on the stack of a worker thread.
fn on_a_small_stack(check: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(check).unwrap();
    thread.join().unwrap();
}

/// A list whose links each meet so many subschemas in each other, and its two ends as arguments.
fn chain(wraps: usize) -> (Value, [String; 2]) {
    // Of all keywords this one takes the most stack.
    let wrapped = |inner: Value| (0..wraps).fold(inner, |inner, _| json!({"oneOf": [inner]}));
    let link = json!({"properties": {"next": {"$ref": "#/$defs/a"}}, "required": ["next"]});
    let schema = json!({"$defs": {"a": wrapped(link)}, "$ref": "#/$defs/a"});
    let links = MAX_DEPTH - 1;
    let nest = |end: &str| format!("{}{end}{}", "{\"next\":".repeat(links), "}".repeat(links));
    (schema, [nest("{}"), nest("1")])
}

#[test]
fn deep_arguments_do_not_overflow_a_small_stack() {
    on_a_small_stack(|| {
        let deepest = (0..40).rev().map(chain).find_map(|(schema, arguments)| {
            let schema = ArgumentSchema::compile(Some(&schema), Dialect::Full).ok()?;
            Some((schema, arguments))
        });
        let (schema, arguments) = deepest.unwrap();
        for arguments in arguments {
            let _ = schema.check(&read_object(&arguments).unwrap());
        }
    });
}

#[test]
fn schemas_that_nest_too_deeply_are_refused_on_a_small_stack() {
    on_a_small_stack(|| {
        let nots = |inner: Value| (0..40).fold(inner, |inner, _| json!({"not": inner}));
        let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
        let schema = json!({
            "$defs": {
                "a": nots(reference("b")),
                "b": nots(reference("c")),
                "c": nots(json!({"properties": {"next": reference("a")}})),
            },
            "$ref": "#/$defs/a",
        });
        let message =
            "its references nest too deeply or make too much work: refer to less from each place";
        check_refused(schema, "", message);
        let mut defs = json!({});
        for n in 0..1500 {
            let next = reference(&format!("n{}", n + 1));
            defs[format!("n{n}")] = json!({"properties": {"x": next}});
        }
        defs["n1500"] = json!({});
        let errors = ArgumentSchema::compile(
            Some(&json!({"$defs": defs, "$ref": "#/$defs/n0"})),
            Dialect::Full,
        );
        assert_eq!(errors.unwrap_err().len(), 1);
    });
}

#[test]
fn more_than_can_be_judged_quickly_is_refused_before() {
    let choices: Vec<_> = (0..3000).map(|n| json!({ "const": n })).collect();
    let schema = compiled(&json!({"properties": {"list": {"items": {"anyOf": choices}}}}));
    let list = |length: usize| read(&json!({"list": vec![0; length]}));
    assert!(schema.check(&list(1_000)).is_ok());
    assert_eq!(
        sentence(&schema.check(&list(50_000)).unwrap_err()),
        "The arguments do not fit the tool: the arguments are too much to be checked against the tool's schema; send less."
    );
    let plain = compiled(&json!({"properties": {"text": {"type": "string"}}}));
    assert!(plain.check(&read(&json!({"text": "x".repeat(1 << 20)}))).is_ok());
}

/// The number `n` as text, against its schema.
#[track_caller]
fn check_number(schema: &Value, number: &str, fits: bool) {
    let schema = compiled(&json!({"properties": {"n": schema}}));
    let arguments = read_object(&format!(r#"{{"n":{number}}}"#)).unwrap();
    let said = schema.check(&arguments).map(|valid| valid.text().clone()).map_err(|p| sentence(&p));
    let message = "The arguments do not fit the tool: /n has more digits than can be checked; write 15 of them at most.";
    match said {
        Ok(text) => assert!(fits && text == arguments.text(), "{number}"),
        Err(said) => assert!(!fits && said == message, "{number}: {said}"),
    }
}

#[test]
fn digits_that_were_not_checked_are_not_sent() {
    let at_most = json!({"type": "integer", "maximum": 100});
    check_number(&at_most, "100.00000000000000001", false);
    check_number(&json!({"maximum": 100}), "100.00000000000000001", false);
    check_number(&json!({"type": "integer"}), "9007199254740993.5", false);
    check_number(&json!({"type": "integer"}), "1e-400", false);
    check_number(&json!({"multipleOf": 2}), "36893488147419103233", false);
    check_number(&json!({"const": 0.1}), "0.10000000000000001", false);
    check_number(&json!({"enum": [100, "x"]}), "100.00000000000000001", false);
}

#[test]
fn digits_that_no_rule_asks_for_are_sent_as_they_are() {
    for number in ["99999999999999999999", "0.12345678901234567890", "1e-400", "9007199254740993.5"]
    {
        check_number(&json!({}), number, true);
        check_number(&json!({"type": "number"}), number, true);
        check_number(&json!({"type": ["number", "null"], "minimum": -5}), number, true);
    }
    check_number(&json!({"type": "integer"}), "99999999999999999999", true);
    check_number(&json!({"type": "integer"}), "100.00000000000000000000", true);
    check_number(&json!({"type": "integer", "maximum": 100}), "1e2", true);
    check_number(&json!({"minimum": 0, "maximum": 1}), "0.30000000000000004", true);
    check_number(&json!({"minimum": 0, "maximum": 1}), "0.99999999999999999", false);
}
