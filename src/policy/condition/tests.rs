//! The table of operators, what is absent, and numbers that no double holds.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::json::read_object;

fn condition(operator: Operator, threshold: Value) -> Condition {
    Condition::new("/x", operator, threshold, None).expect("a condition")
}

/// The operator on `{"x": VALUE}`, the value as text.
#[track_caller]
fn check(value: &str, operator: Operator, threshold: Value, expected: bool) {
    let arguments = read_object(&format!("{{\"x\":{value}}}")).expect("arguments");
    let condition = condition(operator, threshold);
    assert_eq!(condition.holds(&arguments), expected, "{value}: {condition}");
}

#[test]
fn equality_is_by_number_or_by_text_in_any_case() {
    for (value, threshold, expected) in [
        (r#""High""#, json!("high"), true),
        (r#""STRASSE""#, json!("strasse"), true),
        (r#""high ""#, json!("high"), false),
        ("100", json!(100), true),
        ("1e2", json!(100), true),
        ("100.0", json!("100"), true),
        (r#""1E2""#, json!(100), true),
        (r#""0100""#, json!(100), false),
        ("true", json!(true), true),
        (r#""TRUE""#, json!(true), true),
        ("null", json!("null"), true),
        (r#"{"a":1}"#, json!("a"), false),
    ] {
        check(value, Operator::Equals, threshold.clone(), expected);
        check(value, Operator::NotEquals, threshold, !expected);
    }
}

#[test]
fn relations_are_by_number() {
    use Operator::{GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual};
    for (value, greater, equal, less) in [
        ("500", false, true, false),
        ("500.5", true, false, false),
        ("499", false, false, true),
        (r#""10""#, false, false, true),
        (r#""501""#, true, false, false),
        ("-1e3", false, false, true),
        ("9e99", true, false, false),
    ] {
        check(value, GreaterThan, json!(500), greater);
        check(value, GreaterThanOrEqual, json!(500), greater || equal);
        check(value, LessThan, json!(500), less);
        check(value, LessThanOrEqual, json!("500"), less || equal);
    }
}

#[test]
fn containment_is_of_texts_and_of_items() {
    for (value, threshold, expected) in [
        (r#""Hello""#, json!("ELL"), true),
        (r#""Hello""#, json!("x"), false),
        (r#"["a","B"]"#, json!("b"), true),
        (r#"["ab"]"#, json!("a"), false),
        ("[1.0]", json!(1), true),
        ("12345", json!(34), true),
        (r#"{"ell":1}"#, json!("ell"), false),
        // The last letter of a word has a form of its own.
        (r#""ΤΕΛΟΣ""#, json!("Σ"), true),
        (r#""ΟΣΤΑ""#, json!("ΟΣ"), true),
        (r#""τελος""#, json!("ΤΕΛΟΣ"), true),
        ("[1, 100.00000000000000001]", json!(100), true),
        ("[-1e-400]", json!(0), true),
    ] {
        check(value, Operator::Contains, threshold.clone(), expected);
        check(value, Operator::NotContains, threshold, !expected);
    }
}

#[test]
fn membership_is_in_a_list_or_a_text_with_commas() {
    for (value, threshold, expected) in [
        (r#""high""#, json!(["high", "urgent"]), true),
        (r#""Urgent""#, json!("high, urgent"), true),
        (r#""low""#, json!("high, urgent"), false),
        ("2", json!([1, 2.0]), true),
        ("false", json!([true]), false),
    ] {
        check(value, Operator::In, threshold.clone(), expected);
        check(value, Operator::NotIn, threshold, !expected);
    }
}

#[test]
fn what_is_absent_or_no_number_counts_for_a_relation_and_for_nothing_else() {
    let nothing = read_object("{}").expect("arguments");
    for operator in Operator::ALL {
        let threshold = if operator.is_relational() { json!(5) } else { json!("5") };
        let by_default = condition(operator, threshold.clone());
        assert_eq!(by_default.holds(&nothing), operator.is_relational(), "{operator:?}");
        for on_absent in [Absent::Match, Absent::Skip] {
            let told = Condition::new("/x", operator, threshold.clone(), Some(on_absent));
            let told = told.expect("a condition");
            assert_eq!(told.holds(&nothing), on_absent == Absent::Match, "{operator:?}");
        }
    }
    for no_number in [r#""many""#, r#"" 6""#, r#""0x10""#, "null", "true", "[6]", "{}"] {
        check(no_number, Operator::GreaterThan, json!(5), true);
        check(no_number, Operator::LessThan, json!(5), true);
    }
}

#[test]
fn digits_that_no_double_holds_lead_past_no_rule() {
    for (value, operator, threshold) in [
        ("500.00000000000000000001", Operator::GreaterThan, json!(500)),
        ("499.99999999999999999999", Operator::LessThan, json!(500)),
        (r#""500.00000000000000000001""#, Operator::GreaterThan, json!(500)),
        ("500.00000000000000000001", Operator::Equals, json!(500)),
        ("500.00000000000000000001", Operator::NotEquals, json!(500)),
        ("9007199254740993", Operator::GreaterThan, json!(9_007_199_254_740_992_i64)),
        ("18446744073709551616", Operator::GreaterThan, json!(u64::MAX)),
    ] {
        check(value, operator, threshold, true);
    }
    check("9007199254740993", Operator::GreaterThan, json!(9_007_199_254_740_993_i64), false);
    check("500", Operator::GreaterThan, json!(500), false);
}

#[test]
fn a_pointer_leads_anywhere_in_the_arguments() {
    let arguments = read_object(r#"{"a/b":{"c":[{"d":7}]},"~":8}"#).expect("arguments");
    for (pointer, threshold) in [("/a~1b/c/0/d", 7), ("/~0", 8)] {
        let found = Condition::new(pointer, Operator::Equals, json!(threshold), None);
        assert!(found.expect("a condition").holds(&arguments), "{pointer}");
    }
}

#[test]
fn what_is_no_condition_says_why() {
    let refused = |pointer: &str, operator, threshold| {
        Condition::new(pointer, operator, threshold, None).expect_err("no condition").to_string()
    };
    let long = format!("/{}", "x".repeat(MAX_POINTER));
    for pointer in ["", "amount", "/~2", "/a~", &long] {
        let text = refused(pointer, Operator::Equals, json!(1));
        assert_eq!(text, "must be a JSON pointer such as /amount");
    }
    let text = refused("/x", Operator::LessThan, json!("many"));
    assert_eq!(text, "must be a number, `less_than` compares by number");
    for threshold in [json!([1]), json!({}), json!(null)] {
        let text = refused("/x", Operator::Equals, threshold);
        assert_eq!(text, "must be one text, number or boolean, `equals` takes no list");
    }
    for threshold in [json!([]), json!([[1]]), json!(1), json!(vec![1; MAX_LIST + 1])] {
        let text = refused("/x", Operator::In, threshold);
        assert!(text.starts_with("must be a list of 1 to 256 "), "{text}");
    }
}

#[test]
fn a_condition_reads_as_it_is_written() {
    assert_eq!(condition(Operator::GreaterThan, json!(500)).to_string(), "/x greater_than 500");
    let list = condition(Operator::NotIn, json!("a, b"));
    assert_eq!(list.to_string(), r#"/x not_in ["a", "b"]"#);
}

proptest! {
    #[test]
    fn of_each_pair_one_side_holds(value in ".{0,8}", number in any::<i64>(), threshold in any::<i64>()) {
        use Operator::{Equals, GreaterThan, LessThanOrEqual, NotEquals};
        let arguments = read_object(&json!({"x": number, "y": value}).to_string()).expect("arguments");
        for (pointer, one, other) in [("/x", GreaterThan, LessThanOrEqual), ("/x", Equals, NotEquals), ("/y", Equals, NotEquals)] {
            let holds = |operator| {
                let made = Condition::new(pointer, operator, json!(threshold), Some(Absent::Skip));
                made.expect("a condition").holds(&arguments)
            };
            prop_assert_ne!(holds(one), holds(other));
        }
    }
}
