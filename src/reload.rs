//! The one way to another configuration: everything is read and built first, then all of it is taken or nothing.

pub mod means;
mod overlaps;
mod watch;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch as channel};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::clock::Clock;
use crate::config::context::{Earlier, Source};
use crate::config::file::label;
use crate::config::snapshot::Snapshot;
use crate::gateway::notices::Teller;
use crate::model::secret::Secret;
use crate::model::time::rfc3339;
use crate::net::epoch::Epoch;
use crate::reload::means::Means;
use crate::reload::overlaps::{Overlaps, Stage};
use crate::reload::watch::{Watch, places};
use crate::source::reading::Reading;
use crate::source::{self, LoadError};
use crate::store::records::AuditEntry;
use crate::telemetry::audit::{ADMIN, SYSTEM};
use crate::telemetry::labels::ReloadOutcome;

/// How often the files are compared with what was read of them: not every change of a folder can be watched.
const POLL: Duration = Duration::from_secs(10);
/// How many may wait for a reload.
const WAITING: usize = 16;

/// What asked for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A request to the admin listener.
    Admin,
    /// The regular look at the files.
    Poll,
    /// SIGHUP.
    Signal,
    /// Something happened in a folder.
    Watch,
}

/// How a reload ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// Another configuration is in force.
    Applied {
        /// Counts the configurations of this process.
        generation: u64,
        /// SHA-256 of the configuration text, 16 hex digits.
        hash: String,
        /// What works but looks wrong.
        warnings: Vec<String>,
    },
    /// What was read is wrong; the configuration before stays.
    Invalid {
        /// All that is wrong, each with its place.
        errors: Vec<String>,
    },
    /// What was read is right, but a listener or the store cannot change; the configuration before stays.
    NeedsRestart {
        /// The keys that differ.
        what: Vec<&'static str>,
    },
    /// It is the one in force.
    Unchanged,
}

/// Asks for reloads. Clones ask the same worker, which does one at a time.
#[derive(Debug, Clone)]
pub struct Reloader {
    requests: mpsc::Sender<Request>,
    last: channel::Receiver<Option<LastReload>>,
}

/// The last reload of this process.
#[derive(Debug, Clone)]
pub struct LastReload {
    /// When it ended, in Unix milliseconds.
    pub at_ms: i64,
    /// What asked for it.
    pub trigger: Trigger,
    /// What became of it.
    pub result: ReloadResult,
}

#[derive(Debug)]
struct Request {
    trigger: Trigger,
    reply: oneshot::Sender<ReloadResult>,
}

/// Looks at the files, and replaces the configuration.
pub struct ReloadWorker {
    files: Vec<PathBuf>,
    bound: Vec<SocketAddr>,
    epochs: channel::Sender<Arc<Epoch>>,
    means: Means,
    requests: mpsc::Receiver<Request>,
    last: channel::Sender<Option<LastReload>>,
    in_force: Arc<InForce>,
    /// What was read last, which may not be in force.
    seen: Arc<Reading>,
    watch: Watch,
    overlaps: Overlaps,
}

/// What the configuration in force was made of.
#[derive(Debug)]
pub struct InForce {
    reading: Arc<Reading>,
    earlier: Earlier,
}

impl InForce {
    /// Of the load that it came from.
    pub fn new(reading: Reading, secrets: HashMap<Source, Secret>, snapshot: &Snapshot) -> Self {
        Self { reading: Arc::new(reading), earlier: snapshot.earlier(secrets) }
    }

    /// How many secrets could not be read for it.
    pub fn unreadable(&self) -> usize {
        self.reading.unreadable()
    }
}

impl Reloader {
    /// Reads everything again and takes it, where it can be taken. `None` once the gateway ends.
    pub async fn reload(&self, trigger: Trigger) -> Option<ReloadResult> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { trigger, reply }).await.ok()?;
        answer.await.ok()
    }

    /// The last one, whoever asked for it; `None` where there was none since the start.
    pub fn last(&self) -> Option<LastReload> {
        self.last.borrow().clone()
    }
}

impl ReloadWorker {
    /// For a gateway whose listeners took these addresses, on the configuration in `epochs`.
    pub fn new(
        files: &[PathBuf],
        bound: Vec<SocketAddr>,
        epochs: channel::Sender<Arc<Epoch>>,
        in_force: InForce,
        means: Means,
    ) -> (Reloader, Self) {
        let (sender, requests) = mpsc::channel(WAITING);
        let (last, told) = channel::channel(None);
        let worker = Self {
            files: files.to_vec(),
            bound,
            epochs,
            requests,
            last,
            seen: in_force.reading.clone(),
            in_force: Arc::new(in_force),
            watch: Watch::new(means.clock.clone()),
            overlaps: Overlaps::default(),
            means,
        };
        (Reloader { requests: sender, last: told }, worker)
    }

    /// Works until it is dropped: on request, when a folder changes, and every ten seconds.
    pub async fn run(mut self) {
        self.follow().await;
        self.look_at_overlaps();
        let mut poll = interval_at(self.means.clock.now() + POLL, POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let trigger = tokio::select! {
                request = self.requests.recv() => {
                    let Some(Request { trigger, reply }) = request else { return };
                    let ended = self.reload(trigger).await;
                    // Whoever asked may have gone.
                    let _ = reply.send(ended);
                    None
                }
                () = self.watch.changed() => Some(Trigger::Watch),
                _ = poll.tick() => Some(Trigger::Poll),
            };
            if let Some(trigger) = trigger
                && !self.is_seen().await
            {
                self.reload(trigger).await;
            }
            self.look_at_overlaps();
        }
    }

    /// Whether the files are what was read last: what is known to be wrong is not told again.
    async fn is_seen(&mut self) -> bool {
        let seen = self.seen.clone();
        // Without an answer the runtime is ending.
        let is_seen = spawn_blocking(move || seen.is_current()).await.unwrap_or(true);
        // A folder may have been replaced by one with the same content.
        self.follow().await;
        is_seen
    }

    async fn follow(&mut self) {
        let seen = self.seen.clone();
        if let Ok(places) = spawn_blocking(move || places(&seen)).await {
            self.watch.follow(places);
        }
    }

    async fn reload(&mut self, trigger: Trigger) -> ReloadResult {
        let before = self.epochs.borrow().snapshot.hash.clone();
        let look = Look {
            files: self.files.clone(),
            bound: self.bound.clone(),
            in_force: self.in_force.clone(),
            before: self.epochs.borrow().clone(),
            clock: self.means.clock.clone(),
        };
        let found = spawn_blocking(move || look.run()).await.unwrap_or_else(|error| {
            self.means.metrics.panics.inc();
            let ended = Ended::invalid(&error);
            Found { reading: self.seen.clone(), ended, broken: Vec::new() }
        });
        self.seen = found.reading;
        let result = match found.ended {
            Ended::New(epoch, in_force) => self.apply(*epoch, in_force),
            Ended::Not(result) => result,
        };
        self.follow().await;
        let at_ms = self.means.clock.unix_ms();
        self.means.metrics.config.files(&self.epochs.borrow().snapshot);
        self.means.metrics.config.broken(&found.broken);
        result.tell(trigger);
        if matches!(result, ReloadResult::Invalid { .. } | ReloadResult::NeedsRestart { .. }) {
            let epoch = self.epochs.borrow().clone();
            let teller = Teller::new(&epoch.snapshot, at_ms);
            self.means.outbox.offer(teller.config_rejected(&result.findings()));
        }
        self.means.metrics.config.reloaded(result.outcome(), at_ms.div_euclid(1000));
        self.note(trigger, &result, before);
        self.last.send_replace(Some(LastReload { at_ms, trigger, result: result.clone() }));
        result
    }

    /// Takes down who had it read, and what that changed.
    fn note(&self, trigger: Trigger, result: &ReloadResult, before: String) {
        let actor = match trigger {
            Trigger::Admin => ADMIN,
            Trigger::Poll | Trigger::Signal | Trigger::Watch => SYSTEM,
        };
        let detail = json!({"result": result.outcome().as_str(), "trigger": trigger.as_str()});
        let audit = &self.means.audit;
        audit.note(AuditEntry {
            before: Some(before),
            after: Some(self.epochs.borrow().snapshot.hash.clone()),
            detail: Some(detail.to_string()),
            ..audit.deed(actor, "reload")
        });
    }

    /// Puts another configuration in force. Nothing here can fail, so that it is taken as a whole.
    fn apply(&mut self, epoch: Epoch, in_force: InForce) -> ReloadResult {
        let (before, epoch) = (self.epochs.borrow().clone(), Arc::new(epoch));
        let snapshot = &epoch.snapshot;
        self.means.announce(&epoch, Some(&before), in_force.unreadable());
        // Before its first call: what is counted for each tool goes on where nothing changed.
        self.means.limits.configure(snapshot);
        self.epochs.send_replace(epoch.clone());
        // From here on calls begin on it. Whoever keeps something for each tool parts with what it changes:
        self.means.webhook.configure(&epoch);
        // An operator's own level stays until the file says another one.
        if snapshot.logging != before.snapshot.logging {
            self.means.log.configure(snapshot.logging);
        }
        self.in_force = Arc::new(in_force);
        ReloadResult::Applied {
            generation: snapshot.generation,
            hash: snapshot.hash.clone(),
            warnings: snapshot.warnings.iter().map(ToString::to_string).collect(),
        }
    }

    /// Time goes on without a reload: a key stops signing, and somebody should know before.
    fn look_at_overlaps(&mut self) {
        let epoch = self.epochs.borrow().clone();
        let now = self.means.clock.unix_ms().div_euclid(1000);
        self.means.show_signing_keys(&epoch.snapshot, now);
        for news in self.overlaps.news(&epoch.snapshot, now) {
            if news.is_first {
                let teller = Teller::new(&epoch.snapshot, now.saturating_mul(1000));
                self.means.outbox.offer(teller.overlap_ending(news.tool, news.until));
            }
            let (tool, until) = (news.tool, rfc3339(news.until.saturating_mul(1000)));
            let until = until.as_str();
            match news.stage {
                Stage::Ended => {
                    tracing::warn!(tool, until, "The previous key no longer signs, it can go.");
                }
                Stage::EndsInADay | Stage::Running => {}
                Stage::EndsSoon => {
                    tracing::warn!(tool, until, "The previous key stops signing within an hour.");
                }
            }
        }
    }
}

impl ReloadResult {
    /// The label of `config_reloads_total`.
    pub fn outcome(&self) -> ReloadOutcome {
        match self {
            Self::Applied { .. } => ReloadOutcome::Applied,
            Self::Invalid { .. } => ReloadOutcome::Invalid,
            Self::NeedsRestart { .. } => ReloadOutcome::NeedsRestart,
            Self::Unchanged => ReloadOutcome::Unchanged,
        }
    }

    /// What is wrong, or looks wrong, or needs a restart.
    pub fn findings(&self) -> Vec<String> {
        match self {
            Self::Applied { warnings, .. } => warnings.clone(),
            Self::Invalid { errors } => errors.clone(),
            Self::NeedsRestart { what } => {
                what.iter().map(|key| format!("{key} differs")).collect()
            }
            Self::Unchanged => Vec::new(),
        }
    }

    fn tell(&self, trigger: Trigger) {
        let trigger = trigger.as_str();
        match self {
            Self::Applied { generation, hash, warnings } => {
                let warnings = warnings.len();
                tracing::info!(
                    trigger,
                    generation,
                    hash,
                    warnings,
                    "Another configuration is in force."
                );
            }
            Self::Invalid { errors } => {
                for error in errors {
                    tracing::error!(error, "The new configuration is wrong here.");
                }
                let errors = errors.len();
                tracing::error!(
                    trigger,
                    errors,
                    "The new configuration is not valid, the one before stays in force."
                );
            }
            Self::NeedsRestart { what } => {
                let what = what.join(", ");
                tracing::error!(
                    trigger,
                    what,
                    "The new configuration needs a restart, the one before stays in force."
                );
            }
            Self::Unchanged => tracing::info!(trigger, "The configuration is the one in force."),
        }
    }
}

impl Trigger {
    /// The name in log lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Poll => "poll",
            Self::Signal => "signal",
            Self::Watch => "watch",
        }
    }
}

/// One look at the files, away from the threads that serve.
struct Look {
    files: Vec<PathBuf>,
    bound: Vec<SocketAddr>,
    in_force: Arc<InForce>,
    before: Arc<Epoch>,
    clock: Arc<dyn Clock>,
}

struct Found {
    reading: Arc<Reading>,
    ended: Ended,
    /// Files that kept the configuration from being taken.
    broken: Vec<String>,
}

enum Ended {
    New(Box<Epoch>, InForce),
    Not(ReloadResult),
}

impl Ended {
    fn invalid(error: &dyn std::fmt::Display) -> Self {
        Self::Not(ReloadResult::Invalid { errors: vec![error.to_string()] })
    }
}

impl Look {
    fn run(self) -> Found {
        let in_force = &self.in_force;
        let unchanged = || Found {
            reading: in_force.reading.clone(),
            ended: Ended::Not(ReloadResult::Unchanged),
            broken: Vec::new(),
        };
        if in_force.reading.is_current() {
            return unchanged();
        }
        let load = {
            let local = self.before.snapshot.local;
            source::load_again(&self.files, &self.bound, &in_force.earlier, local)
        };
        if load.reading == *in_force.reading {
            return unchanged();
        }
        let reading = Arc::new(load.reading);
        let mut broken = Vec::new();
        let ended = match load.found {
            Ok(snapshot) => self.build(snapshot, reading.clone(), load.secrets),
            Err(LoadError::Invalid(found)) => {
                broken.extend(found.errors.iter().map(|error| error.file.clone()));
                let errors = found.errors.iter().map(ToString::to_string).collect();
                Ended::Not(ReloadResult::Invalid { errors })
            }
            Err(error @ LoadError::Unreadable { .. }) => {
                broken.extend(error.file().map(str::to_owned));
                Ended::invalid(&error)
            }
        };
        let main = self.before.snapshot.files.first().map(|file| file.name.as_str());
        let label = |file: String| label(main.unwrap_or_default(), &file);
        Found { reading, ended, broken: broken.into_iter().map(label).collect() }
    }

    fn build(
        &self,
        snapshot: Snapshot,
        reading: Arc<Reading>,
        secrets: HashMap<Source, Secret>,
    ) -> Ended {
        let before = &self.before.snapshot;
        let mut what = before.listeners.changes(&snapshot.listeners);
        what.extend(before.storage.changes(&snapshot.storage));
        if !what.is_empty() {
            return Ended::Not(ReloadResult::NeedsRestart { what });
        }
        let snapshot = Arc::new(Snapshot { generation: before.generation + 1, ..snapshot });
        match Epoch::new(snapshot.clone(), Some(&self.before), &self.clock) {
            Ok(epoch) => {
                let earlier = snapshot.earlier(secrets);
                Ended::New(Box::new(epoch), InForce { reading, earlier })
            }
            Err(error) => Ended::invalid(&error),
        }
    }
}
