//! Delivers what people are told: from the outbox, at once, again after a failure, and for a day at most.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::gateway::notices::MailBody;
use crate::model::notice::{Sink, Told};
use crate::net::epoch::Epoch;
use crate::net::smtp::{self, Mail};
use crate::net::webhook_out;
use crate::policy::mail::{MailAddress, MailAddressError};
use crate::store::records::{Claimed, Notice};
use crate::store::{Store, StoreError};
use crate::telemetry::metrics::Metrics;

/// Deliveries at the same time.
const AT_ONCE: usize = 16;
/// Longer than a delivery may take: nobody else tries meanwhile, and after a crash somebody does.
const CLAIM_MS: i64 = 30_000;
/// What failed is tried again after this, and then after twice the time ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this ...
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);
/// ... and given up after this.
const GIVEN_UP_MS: i64 = 24 * 60 * 60 * 1000;
/// The outbox is looked at this often, for what is due again and for what other gateways left.
const LOOK: Duration = Duration::from_secs(1);
/// Notices of no call that wait to be kept.
const WAITING: usize = 64;

/// The way into the outbox. Clones lead to the same one.
#[derive(Debug, Clone)]
pub struct Outbox {
    wake: Arc<Notify>,
    offers: mpsc::Sender<Vec<Notice>>,
}

/// The other end: what was offered, and the call to look.
#[derive(Debug)]
pub struct Offered {
    wake: Arc<Notify>,
    offers: mpsc::Receiver<Vec<Notice>>,
}

/// Delivers what is in the outbox.
pub struct Notifier {
    offered: Offered,
    courier: Arc<Courier>,
}

struct Courier {
    store: Arc<dyn Store>,
    epochs: watch::Receiver<Arc<Epoch>>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

/// Why a notice is not delivered now, for the operator.
#[derive(Debug, thiserror::Error)]
enum Undelivered {
    #[error(transparent)]
    Address(#[from] MailAddressError),
    #[error("it cannot be read: {0}")]
    Body(#[from] serde_json::Error),
    #[error(transparent)]
    Mail(#[from] smtp::MailError),
    #[error("the server of `notifications.smtp` cannot be read")]
    NoServer,
    #[error("the configuration has no `notifications.{}` any more", .0.as_str())]
    NoSink(Sink),
    #[error(transparent)]
    Webhook(#[from] webhook_out::WebhookError),
}

impl Undelivered {
    /// Whether another try may help.
    fn may_pass(&self) -> bool {
        match self {
            Self::Address(_) | Self::Body(_) | Self::NoSink(_) => false,
            Self::Mail(_) | Self::NoServer | Self::Webhook(_) => true,
        }
    }
}

impl Outbox {
    /// An outbox, and its other end.
    pub fn new() -> (Self, Offered) {
        let wake = Arc::new(Notify::new());
        let (sender, offers) = mpsc::channel(WAITING);
        (Self { wake: wake.clone(), offers: sender }, Offered { wake, offers })
    }

    /// Notices were kept: they are delivered at once.
    pub fn written(&self) {
        self.wake.notify_one();
    }

    /// Notices of no call: they are kept as soon as that can be, and nobody waits for it.
    pub fn offer(&self, notices: Vec<Notice>) {
        if !notices.is_empty() && self.offers.try_send(notices).is_err() {
            tracing::warn!("A notification is dropped: too many wait to be kept.");
        }
    }
}

impl Notifier {
    /// For the outbox in this store, by the configuration in force.
    pub fn new(
        offered: Offered,
        store: Arc<dyn Store>,
        epochs: watch::Receiver<Arc<Epoch>>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { offered, courier: Arc::new(Courier { store, epochs, clock, metrics }) }
    }

    /// Delivers until it is dropped. What is under way then is delivered again later.
    pub async fn run(mut self) {
        let mut under_way = JoinSet::new();
        let mut works = true;
        loop {
            let free = AT_ONCE - under_way.len();
            if free > 0 {
                let claimed = self.courier.claim(free).await;
                if let Err(error) = &claimed
                    && works
                {
                    tracing::warn!(%error, "The outbox cannot be read, people are told later.");
                }
                works = claimed.is_ok();
                for claimed in claimed.unwrap_or_default() {
                    under_way.spawn(self.courier.clone().attempt(claimed));
                }
            }
            tokio::select! {
                _ = under_way.join_next(), if !under_way.is_empty() => {}
                offer = self.offered.offers.recv() => {
                    let Some(notices) = offer else { return };
                    self.courier.keep(notices).await;
                }
                () = self.offered.wake.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

impl Courier {
    async fn claim(&self, most: usize) -> Result<Vec<Claimed>, StoreError> {
        let now_ms = self.clock.unix_ms();
        self.store.claim_notices(now_ms, now_ms.saturating_add(CLAIM_MS), most).await
    }

    async fn keep(&self, notices: Vec<Notice>) {
        if let Err(error) = self.store.notify(notices).await {
            tracing::warn!(%error, "A notification is dropped: it cannot be kept.");
        }
    }

    /// Tries one notice once.
    async fn attempt(self: Arc<Self>, claimed: Claimed) {
        let Claimed { id, notice, tries } = claimed;
        let Some(sink) = Sink::parse(&notice.sink) else {
            // A later version may know it; this one is not to try it for ever.
            return self.forget(id).await;
        };
        let (event, message_id) = (notice.event.as_str(), notice.message_id.as_str());
        let Err(error) = self.deliver(sink, &notice).await else {
            self.metrics.notified(sink, Told::Sent);
            return self.forget(id).await;
        };
        let now_ms = self.clock.unix_ms();
        let sink_name = sink.as_str();
        if !error.may_pass() || now_ms.saturating_sub(notice.created_at_ms) >= GIVEN_UP_MS {
            tracing::error!(sink = sink_name, event, message_id, tries, %error, "A notification is given up.");
            self.metrics.notified(sink, Told::Dropped);
            return self.forget(id).await;
        }
        tracing::warn!(sink = sink_name, event, message_id, tries, %error, "A notification was not taken, it is sent again.");
        self.metrics.notified(sink, Told::Failed);
        let due_at_ms = now_ms.saturating_add(pause(tries, rand::random()));
        if let Err(error) = self.store.put_off_notice(id, due_at_ms).await {
            // Its claim ends, and it is tried again then.
            tracing::warn!(%error, "A notification's next try is not kept.");
        }
    }

    async fn deliver(&self, sink: Sink, notice: &Notice) -> Result<(), Undelivered> {
        let epoch = self.epochs.borrow().clone();
        let ways = &epoch.snapshot.notifications;
        match sink {
            Sink::Webhook => {
                let webhook = ways.webhook.as_ref().ok_or(Undelivered::NoSink(sink))?;
                let (id, body) = (&notice.message_id, Bytes::from(notice.body.clone()));
                webhook_out::deliver(&epoch, webhook, id, body, &*self.clock).await?;
            }
            Sink::Smtp => {
                let mail = ways.mail.as_ref().ok_or(Undelivered::NoSink(sink))?;
                let server = mail.server.as_ref().ok_or(Undelivered::NoServer)?;
                let body: MailBody = serde_json::from_str(&notice.body)?;
                let to = body.to.iter().map(|text| MailAddress::parse(text));
                let to = to.collect::<Result<Vec<_>, _>>()?;
                let mail = Mail {
                    from: &mail.from,
                    to: &to,
                    message_id: &notice.message_id,
                    subject: &body.subject,
                    text: &body.text,
                };
                smtp::send(server, &epoch.snapshot.tls, mail).await?;
            }
        }
        Ok(())
    }

    async fn forget(&self, id: i64) {
        if let Err(error) = self.store.drop_notice(id).await {
            tracing::warn!(%error, "A delivered notification is still in the outbox and is sent once more.");
        }
    }
}

/// How long until the next try, in milliseconds; `share` from 0 to 1 spreads those that failed together.
fn pause(tries: u32, share: f64) -> i64 {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(tries)).min(LONGEST_PAUSE);
    let spread = doubled.mul_f64(0.5 + share.clamp(0.0, 1.0) / 2.0);
    i64::try_from(spread.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_second_to_five_minutes() {
        for (tries, most) in [(0, 1000), (1, 2000), (2, 4000), (8, 256_000), (9, 300_000)] {
            assert_eq!((pause(tries, 0.0), pause(tries, 1.0)), (most / 2, most), "{tries}");
        }
        assert_eq!(pause(u32::MAX, 1.0), 300_000);
    }
}
