//! A call's JSON with what it was asked with: its arguments and where it comes from.

use serde::Serialize;

use crate::model::call::CallContext;
use crate::model::outcome_text::write_value;

#[derive(Serialize)]
struct ContextBody<'a> {
    agent_id: Option<&'a str>,
    session_id: Option<&'a str>,
    turn_id: Option<&'a str>,
    turn_index: Option<u32>,
    round: Option<u32>,
    end_user: Option<EndUserBody<'a>>,
    run_id: Option<&'a str>,
    step: Option<&'a str>,
    call_index: u32,
    model_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct EndUserBody<'a> {
    id: Option<&'a str>,
    external_id: Option<&'a str>,
}

/// The text with `arguments` (null where they are not kept) and the call's context as its last fields.
pub fn with_context(text: &[u8], arguments: Option<&[u8]>, context: &CallContext) -> Vec<u8> {
    let Some(inner) = text.strip_suffix(b"}") else { return text.to_vec() };
    let arguments = arguments.unwrap_or(b"null");
    let mut out = Vec::with_capacity(text.len() + arguments.len() + 512);
    out.extend_from_slice(inner);
    if inner != b"{" {
        out.push(b',');
    }
    out.extend_from_slice(b"\"arguments\":");
    out.extend_from_slice(arguments);
    let body = ContextBody {
        agent_id: context.agent_id.as_deref(),
        session_id: context.session_id.as_deref(),
        turn_id: context.turn_id.as_deref(),
        turn_index: context.turn_index,
        round: context.round,
        end_user: context.end_user.as_ref().map(|user| EndUserBody {
            id: user.id.as_deref(),
            external_id: user.external_id.as_deref(),
        }),
        run_id: context.run_id.as_ref().map(|run| run.as_str()),
        step: context.step.as_ref().map(|step| step.as_str()),
        call_index: context.call_index,
        model_call_id: context.model_call_id.as_deref(),
    };
    let begin = out.len();
    write_value(&body, &mut out);
    out[begin] = b',';
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call::EndUser;
    use crate::model::id::Token;

    #[track_caller]
    fn check(text: &str, arguments: Option<&str>, context: &CallContext, expected: &str) {
        let found = with_context(text.as_bytes(), arguments.map(str::as_bytes), context);
        assert_eq!(String::from_utf8(found).unwrap(), expected);
    }

    #[test]
    fn arguments_and_context_follow_the_outcome() {
        let nothing = r#""agent_id":null,"session_id":null,"turn_id":null,"turn_index":null,"round":null,"end_user":null,"run_id":null,"step":null,"call_index":0,"model_call_id":null}"#;
        let context = CallContext::default();
        check("{}", None, &context, &format!(r#"{{"arguments":null,{nothing}"#));
        let text = r#"{"result":{"a":"}"}}"#;
        let expected = format!(r#"{{"result":{{"a":"}}"}},"arguments":{{"b":1e2}},{nothing}"#);
        check(text, Some(r#"{"b":1e2}"#), &context, &expected);
        check("odd", None, &context, "odd");
        let context = CallContext {
            agent_id: Some("support".into()),
            end_user: Some(EndUser { id: None, external_id: Some("cust-77".into()) }),
            run_id: Token::parse("run_1").ok(),
            step: Token::parse("3").ok(),
            call_index: 2,
            ..CallContext::default()
        };
        let expected = r#"{"arguments":null,"agent_id":"support","session_id":null,"turn_id":null,"turn_index":null,"round":null,"end_user":{"id":null,"external_id":"cust-77"},"run_id":"run_1","step":"3","call_index":2,"model_call_id":null}"#;
        check("{}", None, &context, expected);
    }
}
