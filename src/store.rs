//! The storage port: what outlives the process, and how keeping it can fail.
//!
//! Each method that writes is one transaction: all of it is kept, or nothing is.
//! Calls, approvals and identities of one organisation are invisible to every other one.

pub mod batch;
pub mod error;
mod frame;
mod hashed;
pub mod postgres;
pub mod recorder;
pub mod records;
mod row;
pub mod sqlite;

use std::fmt;
use std::sync::Arc;

use crate::clock::BoxFuture;
use crate::config::storage::Keep;
use crate::model::approval::{Approval, ApprovalId, ApprovalStatus, DecidedBy};
use crate::model::id::{CallId, IdempotencyKey};
use crate::store::batch::Batch;
use crate::store::records::{
    ApprovalFilter, AuditEntry, CallFilter, CallRecord, Claimed, Notice, PendingApprovals,
    PolicyRecord, ShadowCount, ShadowSample,
};

pub use crate::store::error::StoreError;

/// A future of the store's.
pub type Stored<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What came of binding an identity.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// It is this call's now.
    Now,
    /// It was another call's already.
    Before(Box<CallRecord>),
}

/// What came of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// It was closed before: decided, expired, void or cancelled.
    Closed(Box<Approval>),
    /// It is decided now.
    Now(Box<Approval>),
}

/// A decision that is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The organisation.
    pub organisation: String,
    /// Which approval.
    pub id: ApprovalId,
    /// What it becomes: anything but `Pending`.
    pub status: ApprovalStatus,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// Who decided, where it was somebody.
    pub by: Option<DecidedBy>,
    /// What they said.
    pub reason: Option<String>,
}

impl Ruling {
    /// Whether an approval can still become this.
    pub(in crate::store) fn is_open(&self, approval: &Approval) -> bool {
        let by_somebody = match self.status {
            ApprovalStatus::Approved | ApprovalStatus::Rejected => true,
            ApprovalStatus::Cancelled
            | ApprovalStatus::Expired
            | ApprovalStatus::Pending
            | ApprovalStatus::Void => false,
        };
        match approval.status {
            ApprovalStatus::Pending => !by_somebody || self.at_ms < approval.expires_at_ms,
            // What was said yes to and has not begun can still be taken back.
            ApprovalStatus::Approved => !by_somebody && approval.used_at_ms.is_none(),
            ApprovalStatus::Cancelled
            | ApprovalStatus::Expired
            | ApprovalStatus::Rejected
            | ApprovalStatus::Void => false,
        }
    }
}

/// Where calls, approvals, policies, notices and the audit trail are kept.
pub trait Store: Send + Sync {
    /// Whether other gateways use the same store. If so, an identity has to be bound there before anything is sent.
    fn is_shared(&self) -> bool;

    /// Whether a call of this id or with this identity may be known: `false` is sure, and costs no I/O.
    fn may_know(
        &self,
        organisation: &str,
        id: Option<&CallId>,
        identity: Option<&IdempotencyKey>,
    ) -> bool;

    /// The call of this id.
    fn call<'a>(&'a self, organisation: &'a str, id: &'a CallId) -> Stored<'a, Option<CallRecord>>;

    /// The call that this identity is bound to, as its own or as its alias.
    fn call_by_identity<'a>(
        &'a self,
        organisation: &'a str,
        identity: &'a IdempotencyKey,
    ) -> Stored<'a, Option<CallRecord>>;

    /// Calls, the oldest first.
    fn calls<'a>(&'a self, filter: &'a CallFilter) -> Stored<'a, Vec<CallRecord>>;

    /// Calls of an organisation that were made at this time or later, in Unix milliseconds: the latest kept first, those
    /// below a place, and the place where the next ones begin. Where it is `None` there are no more.
    fn walk<'a>(
        &'a self,
        organisation: &'a str,
        since_ms: i64,
        below: i64,
        most: usize,
    ) -> Stored<'a, (Vec<CallRecord>, Option<i64>)>;

    /// Keeps calls as they are now, each in place of what was kept under its id. Nothing waits for it: a batch of calls
    /// that ended or began lately. A record that is already final is never replaced by one that is not, and a bound final
    /// one never by one that is not bound.
    fn write(&self, batch: Arc<Batch>) -> Stored<'_, ()>;

    /// Keeps a call that begins to run, unless its id or its identity is bound to another one.
    fn bind(&self, record: CallRecord) -> Stored<'_, Bound>;

    /// Keeps a call that begins to wait, its approval, and what people are told about it, unless its id or its identity
    /// is bound to another call. A call that waits already is replaced; what was approved of it before counts as used.
    fn park(
        &self,
        record: CallRecord,
        approval: Approval,
        notices: Vec<Notice>,
    ) -> Stored<'_, Bound>;

    /// Decides on a pending approval, once: of two at the same instant one finds it closed. An approval that is past its
    /// expiry can only become `Expired`, `Void` or `Cancelled`; one that is approved and unused can still become that.
    /// With it the call is kept as it is now, where it is given.
    fn decide(
        &self,
        ruling: Ruling,
        record: Option<CallRecord>,
        notices: Vec<Notice>,
    ) -> Stored<'_, Decided>;

    /// A call begins to run on an approval that is approved, unused and not past its expiry: `true`, the approval is used,
    /// and the record is kept. `false` where any of that does not hold any more, or where the call runs already.
    ///
    /// `at_ms` is when, in Unix milliseconds.
    fn start<'a>(
        &'a self,
        record: CallRecord,
        approval: &'a ApprovalId,
        at_ms: i64,
    ) -> Stored<'a, bool>;

    /// Keeps the end of a call that waited for a person. Where `unused` is given, that approval is good again: nothing was
    /// sent.
    fn finish(
        &self,
        record: CallRecord,
        unused: Option<ApprovalId>,
        notices: Vec<Notice>,
    ) -> Stored<'_, ()>;

    /// Lets the id and the identities of a finished call go: others may use them.
    fn release<'a>(&'a self, organisation: &'a str, id: &'a CallId) -> Stored<'a, ()>;

    /// An approval with the arguments of its call, where these are kept.
    fn approval<'a>(
        &'a self,
        organisation: &'a str,
        id: &'a ApprovalId,
    ) -> Stored<'a, Option<Approval>>;

    /// All approvals of a call, the oldest first.
    fn approvals_of<'a>(
        &'a self,
        organisation: &'a str,
        call: &'a CallId,
    ) -> Stored<'a, Vec<Approval>>;

    /// Approvals with their arguments, the newest first.
    fn approvals<'a>(&'a self, filter: &'a ApprovalFilter) -> Stored<'a, Vec<Approval>>;

    /// How many approvals of each tool are pending: no row where there are none.
    fn pending(&self) -> Stored<'_, Vec<PendingApprovals>>;

    /// Calls of all organisations that run, of which no living instance says that it runs them: those of instances that
    /// were last heard of before `silent_since_ms`. In a store that is not shared: all that other instances ran.
    fn lost<'a>(&'a self, instance: &'a str, silent_since_ms: i64) -> Stored<'a, Vec<CallRecord>>;

    /// Keeps the end of a lost call, unless somebody has ended it meanwhile: `false`.
    fn bury(&self, record: CallRecord) -> Stored<'_, bool>;

    /// Says that this instance lives.
    fn heard<'a>(&'a self, instance: &'a str, at_ms: i64) -> Stored<'a, ()>;

    /// Claims notices that are due, the oldest first: until `until_ms` nobody else gets them.
    fn claim_notices(&self, now_ms: i64, until_ms: i64, most: usize) -> Stored<'_, Vec<Claimed>>;

    /// A notice was delivered, or is given up: it is forgotten.
    fn drop_notice(&self, id: i64) -> Stored<'_, ()>;

    /// A delivery failed: the notice is due again then.
    fn put_off_notice(&self, id: i64, due_at_ms: i64) -> Stored<'_, ()>;

    /// Keeps notices that belong to no call.
    fn notify(&self, notices: Vec<Notice>) -> Stored<'_, ()>;

    /// Keeps what somebody did.
    fn audit(&self, entries: Vec<AuditEntry>) -> Stored<'_, ()>;

    /// What was done in an organisation since then, the newest first, `most` at most.
    fn audited<'a>(
        &'a self,
        organisation: &'a str,
        since_ms: i64,
        most: usize,
    ) -> Stored<'a, Vec<AuditEntry>>;

    /// Grows with every change of a policy, by whomever it was.
    fn revision(&self) -> Stored<'_, u64>;

    /// The policies of all organisations that the API keeps, by organisation and id.
    fn policies(&self) -> Stored<'_, Vec<PolicyRecord>>;

    /// Keeps a policy. `expected` is the version that it has now, or `None` for a new one; `Conflict` where it has another.
    fn put_policy(&self, record: PolicyRecord, expected: Option<u64>) -> Stored<'_, ()>;

    /// Forgets a policy; `NotFound` where there is none.
    fn delete_policy<'a>(&'a self, organisation: &'a str, id: &'a str) -> Stored<'a, ()>;

    /// Adds to the counts of days, and keeps samples: the first twenty of each day and policy.
    fn count_shadow(&self, counts: Vec<ShadowCount>, samples: Vec<ShadowSample>) -> Stored<'_, ()>;

    /// The counts of a policy, from one day to another, both included. Days since 1970-01-01, UTC.
    fn shadow<'a>(
        &'a self,
        organisation: &'a str,
        policy: &'a str,
        days: [i64; 2],
    ) -> Stored<'a, (Vec<ShadowCount>, Vec<ShadowSample>)>;

    /// Forgets what is older than it has to be: finished calls, closed approvals, the audit trail, counts of days.
    fn sweep<'a>(&'a self, keep: &'a Keep, now_ms: i64) -> Stored<'a, ()>;

    /// Whether it works now.
    fn check(&self) -> Stored<'_, ()>;
}

impl fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
