//! `POST /v1/calls/batch`: the calls of one round, all at the same time, answered in their order.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::Pin;
use std::task::Poll;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use serde_json::value::RawValue;

use crate::gateway::asking::resolve_names;
use crate::model::call::{BatchPlace, ToolCall};
use crate::serve::body::Fields;
use crate::serve::calls::{ApiState, Letter, Place, malformed, read_call, utf8};
use crate::serve::http::{ApiError, json_text};
use crate::serve::route::Route;

/// Most calls of one batch: far more than run in a round.
const MOST_CALLS: usize = 100;
const BATCH_FIELDS: &[&str; 1] = &["calls"];

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![Route::post("/v1/calls/batch", post_batch)]
}

async fn post_batch(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let Letter { epoch, caller, trace, bytes } = Letter::read(&state, request).await?;
    let mut calls = parse_batch(&bytes)?;
    // Nothing runs unless all of it could be read.
    for (at, call) in calls.iter_mut().enumerate() {
        call.stands_in(trace);
        let resolved = resolve_names(&epoch, &caller, call);
        resolved.map_err(|error| malformed(&error, &place(at)))?;
    }
    let running = calls.into_iter().map(|call| {
        let (gateway, epoch, caller) = (state.gateway.clone(), epoch.clone(), caller.clone());
        Box::pin(async move {
            match gateway.call(epoch, caller, call).await {
                Ok(told) => told.body,
                Err(error) => ApiError::from(error).tell().into(),
            }
        })
    });
    let parts: Vec<Bytes> = together(running.collect()).await;
    let mut text = Vec::with_capacity(parts.iter().map(|part| part.len() + 1).sum::<usize>() + 16);
    text.extend_from_slice(b"{\"calls\":[");
    for (at, part) in parts.iter().enumerate() {
        text.extend_from_slice(if at > 0 { b"," } else { b"" });
        text.extend_from_slice(part);
    }
    text.extend_from_slice(b"]}");
    Ok(json_text(StatusCode::OK, text))
}

/// Reads the body of a batch: each call as one that comes alone, its `call_index` by position where it is left out.
pub fn parse_batch(bytes: &[u8]) -> Result<Vec<ToolCall>, ApiError> {
    let fields = Fields::read(utf8(bytes)?, "", BATCH_FIELDS)?;
    let list = fields.raw("calls").ok_or_else(|| fields.missing("calls"))?;
    let list: Vec<&RawValue> = serde_json::from_str(list.get())
        .map_err(|_| fields.error("calls", "must be a list of calls"))?;
    if list.is_empty() || list.len() > MOST_CALLS {
        return Err(fields.error("calls", &format!("must have 1 to {MOST_CALLS} calls")));
    }
    let calls = list.iter().zip(BatchPlace::of_a_batch()).map(|(text, batch)| {
        let call = read_call(text.get(), &place(batch.index()))?;
        Ok(ToolCall { batch: Some(batch), ..call })
    });
    let calls = calls.collect::<Result<Vec<_>, ApiError>>()?;
    let ids = calls.iter().map(|call| Some(call.id.clone()));
    distinct(ids, "call_id", "`call_id`")?;
    let identities = calls.iter().map(|call| call.context.idempotency_key());
    distinct(identities, "call_index", "`run_id`, `step` and `call_index` together")?;
    Ok(calls)
}

fn place(at: usize) -> Place {
    let index = u32::try_from(at).unwrap_or(u32::MAX);
    Place { at: format!("/calls/{at}"), about: Some("calls"), index }
}

/// What tells calls apart does so in one batch too: of two that are the same, one would only be the other's replay.
fn distinct<T: Eq + Hash>(
    values: impl Iterator<Item = Option<T>>,
    field: &str,
    what: &str,
) -> Result<(), ApiError> {
    let mut seen = HashMap::new();
    for (at, value) in values.enumerate() {
        let Some(value) = value else { continue };
        if let Some(first) = seen.insert(value, at) {
            let text = format!("{what} must differ: they are those of /calls/{first} too");
            return Err(ApiError::field(Some("calls"), &format!("/calls/{at}/{field}"), &text));
        }
    }
    Ok(())
}

/// Runs all of them at the same time, begun in their order; what came of each, in their order.
///
/// They share the request's task: a batch is few calls, and a call that outlives its request has a task of its own.
async fn together<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|context| {
        let mut all_are_ready = true;
        for (future, result) in &mut running {
            let Some(waiting) = future else { continue };
            match waiting.as_mut().poll(context) {
                Poll::Ready(ready) => {
                    *result = Some(ready);
                    // Its end gives back what it held, while others go on.
                    *future = None;
                }
                Poll::Pending => all_are_ready = false,
            }
        }
        if all_are_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(calls: &str) -> Result<Vec<ToolCall>, ApiError> {
        parse_batch(format!(r#"{{"calls":[{calls}]}}"#).as_bytes())
    }

    #[track_caller]
    fn check_error(calls: &str, field: &str, part: &str) {
        let error = batch(calls).expect_err(calls);
        assert_eq!(error.field.as_deref(), Some(field), "{calls}: {}", error.message);
        assert!(error.message.contains(part), "{calls}: {}", error.message);
        assert_eq!(error.about, Some("calls"), "the log is told no more");
    }

    fn call(rest: &str) -> String {
        format!(r#"{{"tool":"t","arguments":{{}},"run_id":"r","step":"1"{rest}}}"#)
    }

    #[test]
    fn an_index_that_is_left_out_is_the_position() {
        let calls = [call(""), call(r#","call_index":7"#), call("")].join(",");
        let calls = batch(&calls).expect("a batch");
        let indexes: Vec<_> = calls.iter().map(|call| call.context.call_index).collect();
        assert_eq!(indexes, [0, 7, 2]);
        let places = calls.iter().flat_map(|call| &call.batch).map(BatchPlace::index);
        assert_eq!(places.collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn one_call_of_a_batch_says_its_filler() {
        let calls = batch(&[call(""), call(""), call("")].join(",")).expect("a batch");
        let places: Vec<_> = calls.iter().flat_map(|call| &call.batch).collect();
        places[1].take_filler();
        places.iter().for_each(|place| place.take_filler());
        let said = places.iter().map(|place| place.says_filler());
        assert_eq!(said.collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn what_is_wrong_with_one_call_is_named_with_its_place() {
        let with = |bad: &str| format!("{},{bad}", call(""));
        check_error(&with("7"), "/calls/1", "/calls/1 must be a JSON object");
        check_error(&with(r#"{"tool":"t"}"#), "/calls/1/arguments", "is required");
        check_error(&with(r#"{"tool":"t","arguments":[]}"#), "/calls/1/arguments", "object");
        let twice = r#"{"tool":"t","arguments":{"a":{"b":1,"b":2}}}"#;
        check_error(&with(twice), "/calls/1/arguments/a/b", "twice");
        check_error(&with(&call(r#","x":1"#)), "/calls/1/x", "not known");
        check_error(&with(&call(r#","end_user":{"name":1}"#)), "/calls/1/end_user/name", "known");
        check_error(&with(&call(r#","end_user":3"#)), "/calls/1/end_user", "object");
        check_error(&with(&call(r#","wait_ms":60001"#)), "/calls/1/wait_ms", "60000");
    }

    #[test]
    fn what_is_no_list_of_calls_is_said() {
        let message = |body: &str| parse_batch(body.as_bytes()).expect_err(body).message;
        assert_eq!(message("{}"), "`calls` is required");
        assert_eq!(message(r#"{"calls":{}}"#), "`calls` must be a list of calls");
        assert_eq!(message(r#"{"calls":[]}"#), "`calls` must have 1 to 100 calls");
        let many: Vec<_> = (0..101).map(|step| call(&format!(r#","call_index":{step}"#))).collect();
        assert_eq!(batch(&many[..100].join(",")).expect("a batch").len(), 100);
        assert_eq!(
            batch(&many.join(",")).expect_err("too many").message,
            "`calls` must have 1 to 100 calls"
        );
        assert!(message(r#"{"calls":[],"round":1}"#).contains("`round` is not known"));
    }

    #[test]
    fn calls_of_a_batch_differ() {
        let id = r#","call_id":"call_8f2c""#;
        check_error(&[call(id), call(""), call(id)].join(","), "/calls/2/call_id", "/calls/0");
        let index = r#","call_index":1"#;
        check_error(&[call(index), call("")].join(","), "/calls/1/call_index", "/calls/0");
        // Without run and step there is nothing to mistake.
        let bare = r#"{"tool":"t","arguments":{},"call_index":1}"#;
        assert!(batch(&[bare, bare].join(",")).is_ok());
    }
}
