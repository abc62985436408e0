//! A call as JSON, fields in the order of the contract (section 3): what the runtime is told, and what is kept.

pub mod change;
pub mod context;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::model::approval::Approval;
use crate::model::json_string;
use crate::model::outcome::{
    CallOutcome, Decision, Failure, Phase, Sent, Status, Success, ToolReference, ToolResult,
};
use crate::model::time::{TimeText, rfc3339};
use crate::model::trace::TraceId;

/// A call that has not ended.
#[derive(Debug)]
pub struct OpenCall<'a> {
    /// `Running` or `Waiting`.
    pub phase: Phase,
    /// The call.
    pub id: &'a str,
    /// The name of its tool.
    pub tool: &'a str,
    /// The tool.
    pub reference: Option<&'a ToolReference>,
    /// What the policies said.
    pub decision: Option<&'a Decision>,
    /// For which decision it waits, or on which it runs.
    pub approval: Option<&'a Approval>,
    /// What the model reads meanwhile.
    pub model_text: Option<&'a str>,
    /// The key that goes out.
    pub idempotency_key: Option<&'a str>,
    /// The trace that it belongs to.
    pub trace_id: Option<TraceId>,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds.
    pub started_at_ms: Option<i64>,
    /// Unix milliseconds.
    pub now_ms: i64,
}

/// The body of a finished call. It is written in parts, so that a JSON answer is copied and not written anew.
pub fn write(outcome: &CallOutcome) -> Vec<u8> {
    let success = outcome.ended.as_ref().ok();
    let model = ModelBody::of(outcome);
    let mut out = Vec::with_capacity(3 * model.text.len() + 1024);
    write_fields(&Beginning::from(outcome), &mut out);
    out.extend_from_slice(b",\"result\":");
    match success.map(|success| &success.result) {
        Some(ToolResult::Json(value)) => out.extend_from_slice(value.as_str().as_bytes()),
        Some(ToolResult::Text(text)) => json_string::write(text, &mut out),
        Some(ToolResult::Null) | None => out.extend_from_slice(b"null"),
    }
    write_fields(&Middle::from(outcome), &mut out);
    out.extend_from_slice(b",\"model\":{\"text\":");
    json_string::write(&model.text, &mut out);
    write_fields(&model.flags, &mut out);
    out.push(b'}');
    write_fields(&End::from(outcome), &mut out);
    out.push(b'}');
    out
}

/// The body of a call that has not ended.
pub fn write_open(call: &OpenCall<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let (reference, decision) = (call.reference, call.decision);
    let beginning = Beginning {
        id: call.id,
        status: call.phase.as_str(),
        tool: call.tool,
        tool_id: reference.map(|tool| tool.id.as_str()),
        tool_version: reference.map(|tool| tool.version),
        kind: reference.map(|_| "webhook"),
        decision: decision.map(DecisionBody::from),
        approval: call.approval.map(ApprovalBody::from),
        filler: reference.and_then(|tool| tool.filler.as_deref()),
    };
    write_fields(&beginning, &mut out);
    out.extend_from_slice(b",\"result\":null");
    write_fields(&Middle { truncated: false, result_bytes: 0, error: None }, &mut out);
    out.extend_from_slice(b",\"model\":{\"text\":");
    write_value(&call.model_text, &mut out);
    write_fields(&ModelFlags { is_error: false, reply_stands: false }, &mut out);
    out.push(b'}');
    let duration = call.now_ms.saturating_sub(call.created_at_ms);
    let end = End {
        attempts: Vec::new(),
        idempotency_key: call.idempotency_key,
        trace_id: call.trace_id,
        replayed: false,
        test: false,
        duration_ms: u128::from(u64::try_from(duration).unwrap_or(0)),
        created_at: rfc3339(call.created_at_ms),
        started_at: call.started_at_ms.map(rfc3339),
        finished_at: None,
    };
    write_fields(&end, &mut out);
    out.push(b'}');
    out
}

/// Appends an object without its end: fields may follow, and where fields stand before, it goes on with them.
fn write_fields(part: &impl Serialize, out: &mut Vec<u8>) {
    let begin = out.len();
    write_value(part, out);
    if begin > 0 {
        out[begin] = b',';
    }
    out.pop();
}

fn write_value(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("the API's own shapes are JSON");
}

#[derive(Debug, Serialize)]
struct Beginning<'a> {
    id: &'a str,
    status: &'static str,
    tool: &'a str,
    tool_id: Option<&'a str>,
    tool_version: Option<u32>,
    kind: Option<&'static str>,
    decision: Option<DecisionBody<'a>>,
    approval: Option<ApprovalBody<'a>>,
    filler: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Middle<'a> {
    truncated: bool,
    result_bytes: u64,
    error: Option<ErrorBody<'a>>,
}

#[derive(Debug, Serialize)]
struct End<'a> {
    attempts: Vec<AttemptBody>,
    idempotency_key: Option<&'a str>,
    trace_id: Option<TraceId>,
    replayed: bool,
    test: bool,
    duration_ms: u128,
    created_at: TimeText,
    started_at: Option<TimeText>,
    finished_at: Option<TimeText>,
}

/// An approval as the contract (section 6) has it; in an outcome without the arguments.
#[derive(Debug, Serialize)]
pub struct ApprovalBody<'a> {
    id: &'a str,
    call_id: &'a str,
    kind: &'static str,
    status: &'static str,
    tool: &'a str,
    tool_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Option<&'a RawValue>>,
    arguments_digest: &'a str,
    policy: &'a str,
    rule: Option<&'a str>,
    message: Option<&'a str>,
    created_at: TimeText,
    expires_at: TimeText,
    decided_at: Option<TimeText>,
    decided_by: Option<DecidedByBody<'a>>,
    reason: Option<&'a str>,
}

/// Who decided.
#[derive(Debug, Serialize)]
pub struct DecidedByBody<'a> {
    id: &'a str,
    name: Option<&'a str>,
    verified: bool,
}

impl<'a> ApprovalBody<'a> {
    /// The same with the exact arguments; null where they are no longer kept.
    pub fn with_arguments(approval: &'a Approval) -> Self {
        let kept = approval.arguments.as_deref();
        let arguments = kept.and_then(|text| serde_json::from_slice(text).ok());
        Self { arguments: Some(arguments), ..Self::from(approval) }
    }
}

impl<'a> From<&'a Approval> for ApprovalBody<'a> {
    fn from(approval: &'a Approval) -> Self {
        Self {
            id: approval.id.as_str(),
            call_id: approval.call_id.as_str(),
            kind: approval.kind.as_str(),
            status: approval.status.as_str(),
            tool: &approval.tool,
            tool_version: approval.tool_version,
            arguments: None,
            arguments_digest: &approval.arguments_digest,
            policy: &approval.policy,
            rule: approval.rule.as_deref(),
            message: approval.message.as_deref(),
            created_at: rfc3339(approval.created_at_ms),
            expires_at: rfc3339(approval.expires_at_ms),
            decided_at: approval.decided_at_ms.map(rfc3339),
            decided_by: approval.decided_by.as_ref().map(|by| DecidedByBody {
                id: &by.id,
                name: by.name.as_deref(),
                verified: by.verified,
            }),
            reason: approval.reason.as_deref(),
        }
    }
}

#[derive(Debug, Serialize)]
struct DecisionBody<'a> {
    effect: &'static str,
    policy: &'a str,
    rule: Option<&'a str>,
    shadow: Vec<ShadowBody<'a>>,
}

#[derive(Debug, Serialize)]
struct ShadowBody<'a> {
    policy: &'a str,
    effect: &'static str,
    rule: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    code: &'static str,
    detail: Option<&'static str>,
    message: &'a str,
    outcome: &'static str,
    status: Option<u16>,
    retryable: bool,
    retry_after_ms: Option<u128>,
    details: Vec<ProblemBody<'a>>,
}

#[derive(Debug, Serialize)]
struct ProblemBody<'a> {
    pointer: &'a str,
    keyword: &'a str,
    message: &'a str,
}

struct ModelBody<'a> {
    text: Cow<'a, str>,
    flags: ModelFlags,
}

#[derive(Debug, Serialize)]
struct ModelFlags {
    is_error: bool,
    reply_stands: bool,
}

#[derive(Debug, Serialize)]
struct AttemptBody {
    n: usize,
    at: TimeText,
    duration_ms: u128,
    status: Option<u16>,
    error: Option<AttemptErrorBody>,
}

#[derive(Debug, Serialize)]
struct AttemptErrorBody {
    code: &'static str,
    detail: Option<&'static str>,
}

impl<'a> From<&'a CallOutcome> for Beginning<'a> {
    fn from(outcome: &'a CallOutcome) -> Self {
        let reference = outcome.reference.as_ref();
        Self {
            id: outcome.id.as_str(),
            status: outcome.status().as_str(),
            tool: &outcome.tool,
            tool_id: reference.map(|tool| tool.id.as_str()),
            tool_version: reference.map(|tool| tool.version),
            kind: reference.map(|_| "webhook"),
            decision: outcome.decision.as_ref().map(DecisionBody::from),
            approval: outcome.approval.as_deref().map(ApprovalBody::from),
            filler: reference.and_then(|tool| tool.filler.as_deref()),
        }
    }
}

impl<'a> From<&'a Decision> for DecisionBody<'a> {
    fn from(decision: &'a Decision) -> Self {
        Self {
            effect: decision.effect.as_str(),
            policy: decision.policy.as_str(),
            rule: decision.rule.as_deref(),
            shadow: decision
                .shadow
                .iter()
                .map(|ruling| ShadowBody {
                    policy: ruling.policy.as_str(),
                    effect: ruling.effect.as_str(),
                    rule: ruling.rule.as_deref(),
                })
                .collect(),
        }
    }
}

impl<'a> From<&'a CallOutcome> for Middle<'a> {
    fn from(outcome: &'a CallOutcome) -> Self {
        let success = outcome.ended.as_ref().ok();
        Self {
            truncated: success.is_some_and(|success| success.cut_note.is_some()),
            result_bytes: success.map_or(0, |success| success.result_bytes),
            error: outcome.ended.as_ref().err().map(error_body),
        }
    }
}

impl<'a> From<&'a CallOutcome> for End<'a> {
    fn from(outcome: &'a CallOutcome) -> Self {
        Self {
            attempts: outcome
                .attempts
                .iter()
                .enumerate()
                .map(|(index, attempt)| AttemptBody {
                    n: index + 1,
                    at: rfc3339(attempt.at_ms),
                    duration_ms: attempt.duration.as_millis(),
                    status: attempt.http_status,
                    error: attempt
                        .error
                        .map(|(code, detail)| AttemptErrorBody { code: code.as_str(), detail }),
                })
                .collect(),
            idempotency_key: outcome.idempotency_key.as_ref().map(|key| key.as_str()),
            trace_id: outcome.trace_id,
            replayed: false,
            test: outcome.test,
            duration_ms: outcome.duration.as_millis(),
            created_at: rfc3339(outcome.created_at_ms),
            started_at: outcome.started_at_ms.map(rfc3339),
            finished_at: Some(rfc3339(outcome.finished_at_ms)),
        }
    }
}

fn error_body(failure: &Failure) -> ErrorBody<'_> {
    ErrorBody {
        code: failure.code.as_str(),
        detail: failure.detail,
        message: &failure.message,
        outcome: failure.sent.as_str(),
        status: failure.http_status,
        retryable: failure.retryable,
        retry_after_ms: failure.retry_after.map(|wait| wait.as_millis()),
        details: failure
            .problems
            .iter()
            .map(|problem| ProblemBody {
                pointer: &problem.pointer,
                keyword: &problem.keyword,
                message: &problem.message,
            })
            .collect(),
    }
}

impl<'a> ModelBody<'a> {
    fn of(outcome: &'a CallOutcome) -> Self {
        let read_only = outcome.reference.as_ref().is_some_and(|tool| tool.read_only);
        match &outcome.ended {
            Ok(success) => Self::of_success(success),
            Err(failure) => Self::of_failure(failure, read_only),
        }
    }

    fn of_success(success: &'a Success) -> Self {
        let mut text = Cow::Borrowed(match &success.result {
            ToolResult::Json(value) => value.as_str(),
            // Providers refuse an empty text, and a model reads a sentence better than nothing.
            ToolResult::Null => "The tool answered with an empty body.",
            ToolResult::Text(text) => text,
        });
        if let Some(note) = &success.cut_note {
            text += note.as_str();
        }
        Self { text, flags: ModelFlags { is_error: false, reply_stands: false } }
    }

    fn of_failure(failure: &'a Failure, read_only: bool) -> Self {
        let mut text = Cow::Borrowed(failure.message.as_str());
        let tried = failure.code.status() == Status::Failed;
        if tried && failure.sent == Sent::Unknown && !read_only {
            text += " It may have taken effect; check before trying again.";
        }
        if let Some(said) = &failure.tool_message {
            text += "\n";
            text += said.as_str();
        }
        Self { text, flags: ModelFlags { is_error: true, reply_stands: false } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::FailureCode;

    #[track_caller]
    fn check(failure: Failure, read_only: bool, text: &str) {
        assert_eq!(ModelBody::of_failure(&failure, read_only).text, text);
    }

    fn timeout(sent: Sent) -> Failure {
        let text = "The tool did not answer within 10 s.";
        Failure { sent, ..Failure::not_sent(FailureCode::Timeout, text) }
    }

    #[test]
    fn an_unknown_outcome_warns_unless_the_tool_only_reads() {
        let warned = "The tool did not answer within 10 s. \
                      It may have taken effect; check before trying again.";
        check(timeout(Sent::Unknown), false, warned);
        check(timeout(Sent::Unknown), true, "The tool did not answer within 10 s.");
        check(timeout(Sent::NotSent), false, "The tool did not answer within 10 s.");
    }

    #[test]
    fn what_the_tool_said_follows_the_sentence() {
        let failure = Failure {
            sent: Sent::Answered,
            tool_message: Some("{\"error\":\"no such order\"}".into()),
            ..Failure::not_sent(FailureCode::HttpStatus, "The tool answered with status 404.")
        };
        check(failure, false, "The tool answered with status 404.\n{\"error\":\"no such order\"}");
    }

    #[test]
    fn a_cut_answer_ends_with_its_note() {
        let success = Success {
            result: ToolResult::Text("abc".into()),
            result_bytes: 10,
            cut_note: Some("\n[Cut: the first 3 of 10 bytes are shown.]".into()),
        };
        let text = ModelBody::of_success(&success).text;
        assert_eq!(text, "abc\n[Cut: the first 3 of 10 bytes are shown.]");
    }
}
