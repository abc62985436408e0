//! Every slot, null and left-out keys, order, escapes, and what is said about a misspelt body.

use proptest::prelude::*;

use super::*;
use crate::model::id::Token;

fn parse(json: &str) -> TemplateText {
    serde_json::from_str(json).unwrap()
}

struct Call {
    tool: ToolName,
    call_id: CallId,
    context: CallContext,
    arguments: Bytes,
    sent_at_ms: i64,
}

impl Call {
    fn bare() -> Self {
        Self {
            tool: ToolName::parse("lookup_order").unwrap(),
            call_id: CallId::parse("call_8f2c").unwrap(),
            context: CallContext::default(),
            arguments: Bytes::from_static(br#"{"order_number":"A-1042"}"#),
            sent_at_ms: 1_793_354_102_007,
        }
    }

    fn full() -> Self {
        let context = CallContext {
            agent_id: Some("support".into()),
            session_id: Some("s1".into()),
            turn_id: Some("t1".into()),
            turn_index: None,
            round: None,
            end_user: Some(EndUser {
                id: Some("eu_7".into()),
                external_id: Some("cust-77".into()),
            }),
            run_id: Some(Token::parse("run_7Hq2xV").unwrap()),
            step: Some(Token::parse("3").unwrap()),
            call_index: 2,
            model_call_id: Some("toolu_1".into()),
            test: true,
            trace: None,
        };
        Self { context, ..Self::bare() }
    }

    fn fill(&self, template: &str) -> String {
        let key = self.context.idempotency_key();
        let values = BodyValues {
            tool: &self.tool,
            call_id: &self.call_id,
            context: &self.context,
            arguments: &self.arguments,
            sent_at_ms: self.sent_at_ms,
            idempotency_key: key.as_ref(),
        };
        let body = BodyTemplate::compile(&parse(template)).unwrap().fill(&values);
        String::from_utf8(body.to_vec()).unwrap()
    }
}

#[track_caller]
fn check(call: &Call, template: &str, body: &str) {
    assert_eq!(call.fill(template), body);
}

#[test]
fn every_slot_holds_what_the_call_brought() {
    for (slot, json) in [
        ("tool", r#""lookup_order""#),
        ("call_id", r#""call_8f2c""#),
        ("arguments", r#"{"order_number":"A-1042"}"#),
        ("agent_id", r#""support""#),
        ("session_id", r#""s1""#),
        ("turn_id", r#""t1""#),
        ("end_user", r#"{"id":"eu_7","external_id":"cust-77"}"#),
        ("end_user.id", r#""eu_7""#),
        ("end_user.external_id", r#""cust-77""#),
        ("test", "true"),
        ("sent_at", r#""2026-10-30T09:55:02.007Z""#),
        ("run_id", r#""run_7Hq2xV""#),
        ("step", r#""3""#),
        ("call_index", "2"),
        ("idempotency_key", ""),
        ("model_call_id", r#""toolu_1""#),
    ] {
        assert!(Slot::ALL.iter().any(|known| known.as_str() == slot), "{slot}");
        let json = match slot {
            "idempotency_key" => {
                format!("\"{}\"", Call::full().context.idempotency_key().unwrap().as_str())
            }
            _ => json.to_owned(),
        };
        check(&Call::full(), &format!(r#"{{"x":"${slot}"}}"#), &format!(r#"{{"x":{json}}}"#));
    }
}

#[test]
fn what_the_call_did_not_bring_is_null_or_left_out() {
    let nullable = [
        "agent_id",
        "session_id",
        "turn_id",
        "end_user",
        "end_user.id",
        "end_user.external_id",
        "run_id",
        "step",
        "idempotency_key",
        "model_call_id",
    ];
    for slot in nullable {
        check(&Call::bare(), &format!(r#"{{"x":"${slot}","y":1}}"#), r#"{"x":null,"y":1}"#);
        check(&Call::bare(), &format!(r#"{{"x":"${slot}?","y":1}}"#), r#"{"y":1}"#);
        check(&Call::bare(), &format!(r#"{{"y":1,"x":"${slot}?"}}"#), r#"{"y":1}"#);
        check(&Call::bare(), &format!(r#"{{"x":"${slot}?"}}"#), "{}");
        check(&Call::bare(), &format!(r#"["${slot}?",["${slot}"]]"#), "[[null]]");
    }
    for always in ["tool", "call_id", "arguments", "test", "sent_at", "call_index"] {
        assert_ne!(Call::bare().fill(&format!(r#"{{"x":"${always}?"}}"#)), "{}");
    }
}

#[test]
fn a_person_with_one_id_keeps_both_keys() {
    let mut call = Call::bare();
    call.context.end_user = Some(EndUser { id: None, external_id: Some("cust-77".into()) });
    check(&call, r#"{"u":"$end_user"}"#, r#"{"u":{"id":null,"external_id":"cust-77"}}"#);
    call.context.end_user = Some(EndUser::default());
    check(&call, r#"{"u":"$end_user?"}"#, r#"{"u":{"id":null,"external_id":null}}"#);
}

#[test]
fn keys_keep_their_order_and_the_text_is_compact() {
    let template =
        r#"{ "z": "$tool", "a": { "y": [ 1, 2.5, true, null, "x y" ], "b": {} }, "m": [] }"#;
    check(
        &Call::bare(),
        template,
        r#"{"z":"lookup_order","a":{"y":[1,2.5,true,null,"x y"],"b":{}},"m":[]}"#,
    );
}

#[test]
fn arguments_arrive_byte_for_byte() {
    let mut call = Call::bare();
    let text = r#"{"n":1e2,"big":12345678901234567890,"s":"\u00e9\/","z":-0.0,"a":[]}"#;
    call.arguments = Bytes::from_static(text.as_bytes());
    check(&call, r#""$arguments""#, text);
    check(&call, r#"{"arguments":"$arguments"}"#, &format!(r#"{{"arguments":{text}}}"#));
}

#[test]
fn text_from_the_call_cannot_leave_its_string() {
    let mut call = Call::bare();
    call.context.agent_id = Some("a\"},\\\u{0}\u{1f}\r\n\t\u{7f}\u{2028}é📦".into());
    let written = call.fill(r#"{"x":"$agent_id"}"#);
    assert_eq!(written, "{\"x\":\"a\\\"},\\\\\\u0000\\u001f\\r\\n\\t\u{7f}\u{2028}é📦\"}");
    let read: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(read["x"].as_str(), call.context.agent_id.as_deref());
}

#[test]
fn literals_and_keys_are_escaped_and_a_doubled_dollar_is_one() {
    check(
        &Call::bare(),
        r#"{"a\"b":"c\"d","price":"$$5","$tool":"a$$b"}"#,
        r#"{"a\"b":"c\"d","price":"$5","$tool":"a$b"}"#,
    );
}

#[track_caller]
fn check_time(ms: i64, text: &str) {
    let mut call = Call::bare();
    call.sent_at_ms = ms;
    check(&call, r#"["$sent_at"]"#, &format!("[\"{text}\"]"));
}

#[test]
fn times_have_three_decimals() {
    check_time(1_793_354_102_000, "2026-10-30T09:55:02.000Z");
    check_time(1_793_354_102_999, "2026-10-30T09:55:02.999Z");
    check_time(951_782_400_010, "2000-02-29T00:00:00.010Z");
    check_time(0, "1970-01-01T00:00:00.000Z");
    check_time(-1, "1970-01-01T00:00:00.000Z");
    assert!(
        Call { sent_at_ms: i64::MAX, ..Call::bare() }
            .fill(r#"["$sent_at"]"#)
            .starts_with("[\"9999-12-3")
    );
}

#[track_caller]
fn check_faults(template: &str, faults: &[(&str, &str)]) {
    let found = BodyTemplate::compile(&parse(template)).unwrap_err();
    assert_eq!(found.len(), faults.len(), "{found:?}");
    for (fault, (path, message)) in found.iter().zip(faults) {
        assert_eq!(fault.path, *path);
        assert!(fault.message.contains(message), "{fault}");
    }
}

#[test]
fn a_misspelt_slot_is_a_fault_with_its_path_and_the_list() {
    check_faults(
        r#"{"a":"$argumnets","end_user":{"id":["x","$end_user.idd"]}}"#,
        &[
            (
                "body.a",
                "`$argumnets` is no slot of a body; there are $tool, $call_id, $arguments, ",
            ),
            ("body.end_user.id[1]", "`$end_user.idd` is no slot"),
        ],
    );
    check_faults(r#""$""#, &[("body", "`$` is no slot")]);
    check_faults(r#"["$tool??"]"#, &[("body[0]", "`$tool?` is no slot")]);
    check_faults(r#"["$Tool"]"#, &[("body[0]", "is no slot")]);
    check_faults(
        r#"["id-$call_id"]"#,
        &[("body[0]", "a slot stands alone; write `$$` for a `$` in text")],
    );
    check_faults(r#"["$$$"]"#, &[("body[0]", "a slot stands alone")]);
    check_faults(r#""$arguments?""#, &[("body", "cannot be left out")]);
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let error = serde_json::from_str::<TemplateText>(r#"{"a":1,"b":2,"a":3}"#).unwrap_err();
    assert!(error.to_string().contains("the key `a` stands there twice"), "{error}");
}

#[test]
fn it_is_known_which_slots_a_body_holds() {
    let body = BodyTemplate::compile(&parse(r#"{"a":[{"b":"$run_id?"}]}"#)).unwrap();
    assert!(body.holds(Slot::RunId) && !body.holds(Slot::Arguments));
}

proptest! {
    #[test]
    fn every_slot_appears_once_in_its_place_and_is_text_whatever_it_holds(
        slots in prop::sample::subsequence(Slot::ALL.to_vec(), 0..=Slot::ALL.len()).prop_shuffle(),
        optional in any::<bool>(),
        given in any::<bool>(),
        odd in any::<String>(),
    ) {
        let mut call = if given { Call::full() } else { Call::bare() };
        call.context.agent_id = given.then(|| odd.clone());
        call.context.end_user = given.then(|| EndUser { id: Some(odd.clone()), external_id: None });
        let mark = if optional { "?" } else { "" };
        let field = |slot: &Slot| format!(r#""at {0}":"${0}{mark}""#, slot.as_str());
        let template = format!("{{{}}}", slots.iter().map(field).collect::<Vec<_>>().join(","));
        let compiled = BodyTemplate::compile(&parse(&template)).unwrap();
        for slot in Slot::ALL {
            prop_assert_eq!(compiled.holds(slot), slots.contains(&slot));
        }
        let alone = |slot: &Slot| {
            let field = call.fill(&format!("{{{}}}", field(slot)));
            field[1..field.len() - 1].to_owned()
        };
        let fields: Vec<_> = slots.iter().map(alone).filter(|field| !field.is_empty()).collect();
        let body = call.fill(&template);
        prop_assert_eq!(&body, &format!("{{{}}}", fields.join(",")));
        let read: Value = serde_json::from_str(&body).unwrap();
        prop_assert_eq!(read.as_object().unwrap().len(), fields.len());
        prop_assert!(optional || fields.len() == slots.len());
        if given && slots.contains(&Slot::AgentId) {
            prop_assert_eq!(&read["at agent_id"], &odd);
        }
    }
}
