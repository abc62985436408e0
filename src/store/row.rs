//! Rows as values: what every backend keeps in columns, and the rest of it as JSON.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::approval::{Approval, ApprovalId, ApprovalKind, ApprovalStatus, DecidedBy};
use crate::model::call::{CallContext, EndUser};
use crate::model::id::{CallId, IdempotencyKey, Token};
use crate::model::outcome::Phase;
use crate::model::trace::TraceContext;
use crate::store::error::StoreError;
use crate::store::records::CallRecord;

/// The columns of a call, as they are read.
#[derive(Debug)]
pub(super) struct CallRow {
    pub(super) organisation: String,
    pub(super) id: String,
    pub(super) phase: String,
    pub(super) bound: bool,
    pub(super) identity: Option<String>,
    pub(super) alias: Option<String>,
    pub(super) tool: String,
    pub(super) session_id: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) created_at_ms: i64,
    pub(super) finished_at_ms: Option<i64>,
    pub(super) instance: Option<String>,
    pub(super) rest: String,
    pub(super) arguments: Option<Vec<u8>>,
    pub(super) outcome: Vec<u8>,
}

/// The columns of an approval, as they are read.
#[derive(Debug)]
pub(super) struct ApprovalRow {
    pub(super) organisation: String,
    pub(super) id: String,
    pub(super) call_id: String,
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) tool: String,
    pub(super) session_id: Option<String>,
    pub(super) created_at_ms: i64,
    pub(super) expires_at_ms: i64,
    pub(super) decided_at_ms: Option<i64>,
    pub(super) decided_by: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) used_at_ms: Option<i64>,
    pub(super) rest: String,
    pub(super) arguments: Option<Vec<u8>>,
}

/// What of a call has no column.
#[derive(Serialize, Deserialize)]
struct CallRest<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    code: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    turn_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn_index: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    end_user: Option<Person<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    step: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    call_index: u32,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    model_call_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "is_false")]
    test: bool,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    trace: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    arguments_digest: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct Person<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    external_id: Option<Cow<'a, str>>,
}

/// What of an approval has no column.
#[derive(Serialize, Deserialize)]
struct ApprovalRest<'a> {
    #[serde(borrow)]
    tool_id: Cow<'a, str>,
    tool_version: u32,
    #[serde(borrow)]
    arguments_digest: Cow<'a, str>,
    #[serde(borrow)]
    policy: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    rule: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    binding: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn_index: Option<u32>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    end_user: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct Decider<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    verified: bool,
}

/// What of a call has no column.
pub(super) fn rest_of_call(record: &CallRecord) -> String {
    text(&call_rest(record))
}

/// The same, behind what is there.
pub(super) fn push_rest_of_call(bytes: &mut Vec<u8>, record: &CallRecord) {
    serde_json::to_writer(bytes, &call_rest(record)).expect("texts and numbers are JSON");
}

fn call_rest(record: &CallRecord) -> CallRest<'_> {
    let context = &record.context;
    let end_user = context.end_user.as_ref();
    CallRest {
        key: Cow::Borrowed(&record.key),
        code: record.code.as_deref().map(Cow::Borrowed),
        agent_id: borrowed(&context.agent_id),
        turn_id: borrowed(&context.turn_id),
        turn_index: context.turn_index,
        round: context.round,
        end_user: end_user.map(|person| Person {
            id: borrowed(&person.id),
            external_id: borrowed(&person.external_id),
        }),
        step: context.step.as_ref().map(|step| Cow::Borrowed(step.as_str())),
        call_index: context.call_index,
        model_call_id: borrowed(&context.model_call_id),
        test: context.test,
        trace: context.trace.map(|trace| Cow::Owned(trace.to_text())),
        deadline_ms: record
            .deadline
            .map(|deadline| u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX)),
        arguments_digest: record.arguments_digest.as_deref().map(Cow::Borrowed),
    }
}

/// What of an approval has no column.
pub(super) fn rest_of_approval(approval: &Approval) -> String {
    text(&ApprovalRest {
        tool_id: Cow::Borrowed(&approval.tool_id),
        tool_version: approval.tool_version,
        arguments_digest: Cow::Borrowed(&approval.arguments_digest),
        policy: Cow::Borrowed(&approval.policy),
        rule: borrowed(&approval.rule),
        message: borrowed(&approval.message),
        binding: Cow::Borrowed(&approval.binding),
        agent_id: borrowed(&approval.agent_id),
        turn_index: approval.turn_index,
        end_user: borrowed(&approval.end_user),
    })
}

/// Who decided, as it is kept.
pub(super) fn decider(by: &DecidedBy) -> String {
    text(&Decider { id: Cow::Borrowed(&by.id), name: borrowed(&by.name), verified: by.verified })
}

impl CallRow {
    /// The call of this row.
    pub(super) fn read(self) -> Result<CallRecord, StoreError> {
        let bad = |what: &str| unreadable("call", &self.id, what);
        let rest: CallRest<'_> = serde_json::from_str(&self.rest).map_err(|_| bad("rest"))?;
        let identity = |text: &Option<String>, what| match text {
            None => Ok(None),
            Some(text) => IdempotencyKey::parse(text).map(Some).ok_or_else(|| bad(what)),
        };
        let context = CallContext {
            agent_id: owned(rest.agent_id),
            session_id: self.session_id.clone(),
            turn_id: owned(rest.turn_id),
            turn_index: rest.turn_index,
            round: rest.round,
            end_user: rest.end_user.map(|person| EndUser {
                id: owned(person.id),
                external_id: owned(person.external_id),
            }),
            run_id: token(self.run_id.as_deref()).map_err(|()| bad("run_id"))?,
            step: token(rest.step.as_deref()).map_err(|()| bad("step"))?,
            call_index: rest.call_index,
            model_call_id: owned(rest.model_call_id),
            test: rest.test,
            // A call is worth more than its place in a trace.
            trace: rest.trace.as_deref().and_then(TraceContext::from_text),
        };
        Ok(CallRecord {
            organisation: self.organisation.as_str().into(),
            id: CallId::parse(&self.id).map_err(|_| bad("id"))?,
            phase: Phase::parse(&self.phase).ok_or_else(|| bad("phase"))?,
            bound: self.bound,
            identity: identity(&self.identity, "identity")?,
            alias: identity(&self.alias, "alias")?,
            tool: self.tool.as_str().into(),
            key: rest.key.as_ref().into(),
            context: Arc::new(context),
            deadline: rest.deadline_ms.map(Duration::from_millis),
            code: owned(rest.code).map(Cow::Owned),
            created_at_ms: self.created_at_ms,
            finished_at_ms: self.finished_at_ms,
            arguments: self.arguments.map(Bytes::from),
            arguments_digest: rest.arguments_digest.as_deref().map(Arc::from),
            outcome: Bytes::from(self.outcome),
            instance: self.instance.as_deref().map(Arc::from),
        })
    }
}

impl ApprovalRow {
    /// The approval of this row.
    pub(super) fn read(self) -> Result<Approval, StoreError> {
        let bad = |what: &str| unreadable("approval", &self.id, what);
        let rest: ApprovalRest<'_> = serde_json::from_str(&self.rest).map_err(|_| bad("rest"))?;
        let decided_by = match &self.decided_by {
            None => None,
            Some(by) => {
                let by: Decider<'_> = serde_json::from_str(by).map_err(|_| bad("decided_by"))?;
                let name = owned(by.name);
                Some(DecidedBy { id: by.id.into_owned(), name, verified: by.verified })
            }
        };
        Ok(Approval {
            id: ApprovalId::parse(&self.id).map_err(|_| bad("id"))?,
            organisation: self.organisation.as_str().into(),
            call_id: CallId::parse(&self.call_id).map_err(|_| bad("call_id"))?,
            kind: ApprovalKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            status: ApprovalStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            tool: self.tool,
            tool_id: rest.tool_id.into_owned(),
            tool_version: rest.tool_version,
            arguments: self.arguments.map(Bytes::from),
            arguments_digest: rest.arguments_digest.into_owned(),
            policy: rest.policy.into_owned(),
            rule: owned(rest.rule),
            message: owned(rest.message),
            binding: rest.binding.into_owned(),
            agent_id: owned(rest.agent_id),
            session_id: self.session_id,
            turn_index: rest.turn_index,
            end_user: owned(rest.end_user),
            created_at_ms: self.created_at_ms,
            expires_at_ms: self.expires_at_ms,
            decided_at_ms: self.decided_at_ms,
            decided_by,
            reason: self.reason,
            used_at_ms: self.used_at_ms,
        })
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers are JSON")
}

fn borrowed(text: &Option<String>) -> Option<Cow<'_, str>> {
    text.as_deref().map(Cow::Borrowed)
}

fn owned(text: Option<Cow<'_, str>>) -> Option<String> {
    text.map(Cow::into_owned)
}

fn token(text: Option<&str>) -> Result<Option<Token>, ()> {
    text.map(Token::parse).transpose().map_err(|_| ())
}

fn unreadable(kind: &str, id: &str, what: &str) -> StoreError {
    StoreError::Unavailable(format!("the {kind} {id} cannot be read: its {what} is not one"))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}
