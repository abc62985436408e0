//! The store that several gateways share: a PostgreSQL database.

mod approvals;
mod calls;
mod connection;
mod notices;
mod policies;
mod sweep;

use std::sync::Arc;

use crate::config::snapshot::TlsSettings;
use crate::config::storage::Keep;
use crate::model::approval::{Approval, ApprovalId};
use crate::model::id::{CallId, IdempotencyKey};
use crate::store::batch::Batch;
use crate::store::postgres::connection::{Connections, begin, bounded, commit, execute};
use crate::store::records::{
    ApprovalFilter, AuditEntry, CallFilter, CallRecord, Claimed, Notice, PendingApprovals,
    PolicyRecord, ShadowCount, ShadowSample,
};
use crate::store::{Bound, Decided, Ruling, Store, Stored};

pub use crate::store::postgres::connection::PostgresError;

/// Calls, approvals and the rest in a PostgreSQL database.
pub struct PostgresStore {
    connections: Connections,
}

impl PostgresStore {
    /// Reaches the server, for ten seconds, and makes its tables what they are now. Whether TLS is used stands in the URL
    /// (`sslmode`); which authorities are trusted, in the settings.
    pub async fn open(url: &str, tls: &TlsSettings) -> Result<Self, PostgresError> {
        Ok(Self { connections: Connections::open(url, tls).await? })
    }
}

/// A step in a transaction that is kept where the step went well.
macro_rules! transaction {
    ($self:ident, |$transaction:ident| $step:expr) => {
        bounded(async move {
            let mut client = $self.connections.client().await?;
            let transaction = begin(&mut client).await?;
            let result = {
                let $transaction = &transaction;
                $step.await?
            };
            commit(transaction).await?;
            Ok(result)
        })
    };
}

/// A step that is one statement.
macro_rules! statement {
    ($self:ident, |$client:ident| $step:expr) => {
        bounded(async move {
            let client = $self.connections.client().await?;
            let $client = &client;
            $step.await
        })
    };
}

impl Store for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn may_know(
        &self,
        _organisation: &str,
        id: Option<&CallId>,
        identity: Option<&IdempotencyKey>,
    ) -> bool {
        id.is_some() || identity.is_some()
    }

    fn call<'a>(&'a self, organisation: &'a str, id: &'a CallId) -> Stored<'a, Option<CallRecord>> {
        statement!(self, |client| calls::by_id(client, organisation, id))
    }

    fn call_by_identity<'a>(
        &'a self,
        organisation: &'a str,
        identity: &'a IdempotencyKey,
    ) -> Stored<'a, Option<CallRecord>> {
        statement!(self, |client| calls::by_identity(client, organisation, identity))
    }

    fn calls<'a>(&'a self, filter: &'a CallFilter) -> Stored<'a, Vec<CallRecord>> {
        statement!(self, |client| calls::list(client, filter))
    }

    fn walk<'a>(
        &'a self,
        organisation: &'a str,
        since_ms: i64,
        below: i64,
        most: usize,
    ) -> Stored<'a, (Vec<CallRecord>, Option<i64>)> {
        statement!(self, |client| calls::walk(client, organisation, since_ms, below, most))
    }

    fn write(&self, batch: Arc<Batch>) -> Stored<'_, ()> {
        transaction!(self, |transaction| calls::put(transaction, &batch))
    }

    fn bind(&self, record: CallRecord) -> Stored<'_, Bound> {
        transaction!(self, |transaction| approvals::bind(transaction, record))
    }

    fn park(
        &self,
        record: CallRecord,
        approval: Approval,
        notices: Vec<Notice>,
    ) -> Stored<'_, Bound> {
        transaction!(self, |transaction| approvals::park(transaction, record, &approval, &notices))
    }

    fn decide(
        &self,
        ruling: Ruling,
        record: Option<CallRecord>,
        notices: Vec<Notice>,
    ) -> Stored<'_, Decided> {
        transaction!(self, |transaction| approvals::decide(transaction, &ruling, record, &notices))
    }

    fn start<'a>(
        &'a self,
        record: CallRecord,
        approval: &'a ApprovalId,
        at_ms: i64,
    ) -> Stored<'a, bool> {
        transaction!(self, |transaction| approvals::start(transaction, record, approval, at_ms))
    }

    fn finish(
        &self,
        record: CallRecord,
        unused: Option<ApprovalId>,
        notices: Vec<Notice>,
    ) -> Stored<'_, ()> {
        transaction!(self, |transaction| approvals::finish(
            transaction,
            record,
            unused.as_ref(),
            &notices
        ))
    }

    fn release<'a>(&'a self, organisation: &'a str, id: &'a CallId) -> Stored<'a, ()> {
        transaction!(self, |transaction| approvals::release(transaction, organisation, id))
    }

    fn approval<'a>(
        &'a self,
        organisation: &'a str,
        id: &'a ApprovalId,
    ) -> Stored<'a, Option<Approval>> {
        statement!(self, |client| approvals::one(client, organisation, id))
    }

    fn approvals_of<'a>(
        &'a self,
        organisation: &'a str,
        call: &'a CallId,
    ) -> Stored<'a, Vec<Approval>> {
        statement!(self, |client| approvals::of_call(client, organisation, call.as_str()))
    }

    fn approvals<'a>(&'a self, filter: &'a ApprovalFilter) -> Stored<'a, Vec<Approval>> {
        statement!(self, |client| approvals::list(client, filter))
    }

    fn pending(&self) -> Stored<'_, Vec<PendingApprovals>> {
        statement!(self, |client| approvals::pending(client))
    }

    fn lost<'a>(&'a self, instance: &'a str, silent_since_ms: i64) -> Stored<'a, Vec<CallRecord>> {
        statement!(self, |client| calls::lost(client, instance, silent_since_ms))
    }

    fn bury(&self, record: CallRecord) -> Stored<'_, bool> {
        transaction!(self, |transaction| approvals::bury(transaction, record))
    }

    fn heard<'a>(&'a self, instance: &'a str, at_ms: i64) -> Stored<'a, ()> {
        bounded(async move {
            let client = self.connections.client().await?;
            let insert = "INSERT INTO instances AS i (instance, at_ms) VALUES ($1, $2) \
                ON CONFLICT (instance) DO UPDATE SET at_ms = greatest(i.at_ms, excluded.at_ms)";
            execute(&client, insert, &[&instance, &at_ms]).await.map(drop)
        })
    }

    fn claim_notices(&self, now_ms: i64, until_ms: i64, most: usize) -> Stored<'_, Vec<Claimed>> {
        statement!(self, |client| notices::claim(client, now_ms, until_ms, most))
    }

    fn drop_notice(&self, id: i64) -> Stored<'_, ()> {
        statement!(self, |client| notices::drop_notice(client, id))
    }

    fn put_off_notice(&self, id: i64, due_at_ms: i64) -> Stored<'_, ()> {
        statement!(self, |client| notices::put_off(client, id, due_at_ms))
    }

    fn notify(&self, notices: Vec<Notice>) -> Stored<'_, ()> {
        transaction!(self, |transaction| notices::notify(transaction, &notices))
    }

    fn audit(&self, entries: Vec<AuditEntry>) -> Stored<'_, ()> {
        transaction!(self, |transaction| notices::audit(transaction, &entries))
    }

    fn audited<'a>(
        &'a self,
        organisation: &'a str,
        since_ms: i64,
        most: usize,
    ) -> Stored<'a, Vec<AuditEntry>> {
        statement!(self, |client| notices::audited(client, organisation, since_ms, most))
    }

    fn revision(&self) -> Stored<'_, u64> {
        statement!(self, |client| policies::revision(client))
    }

    fn policies(&self) -> Stored<'_, Vec<PolicyRecord>> {
        statement!(self, |client| policies::list(client))
    }

    fn put_policy(&self, record: PolicyRecord, expected: Option<u64>) -> Stored<'_, ()> {
        transaction!(self, |transaction| policies::put(transaction, &record, expected))
    }

    fn delete_policy<'a>(&'a self, organisation: &'a str, id: &'a str) -> Stored<'a, ()> {
        transaction!(self, |transaction| policies::delete(transaction, organisation, id))
    }

    fn count_shadow(&self, counts: Vec<ShadowCount>, samples: Vec<ShadowSample>) -> Stored<'_, ()> {
        transaction!(self, |transaction| policies::count(transaction, counts, &samples))
    }

    fn shadow<'a>(
        &'a self,
        organisation: &'a str,
        policy: &'a str,
        days: [i64; 2],
    ) -> Stored<'a, (Vec<ShadowCount>, Vec<ShadowSample>)> {
        statement!(self, |client| policies::shadow(client, organisation, policy, days))
    }

    fn sweep<'a>(&'a self, keep: &'a Keep, now_ms: i64) -> Stored<'a, ()> {
        Box::pin(async move {
            let mut stage = Some(0);
            while let Some(now) = stage {
                stage = statement!(self, |client| sweep::step(client, now, keep, now_ms)).await?;
            }
            Ok(())
        })
    }

    /// It writes: a server that has become read-only is seen before a call needs it.
    fn check(&self) -> Stored<'_, ()> {
        bounded(async move {
            let client = self.connections.client().await?;
            let update = "UPDATE revision SET revision = revision";
            execute(&client, update, &[]).await.map(drop)
        })
    }
}
