//! Which log lines are written and in which form: changed while the gateway runs.

use std::sync::{Arc, PoisonError, RwLock};

use tracing::callsite::rebuild_interest_cache;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use crate::config::snapshot::{LogLevel, Logging};

/// The settings in force. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Dial(Arc<RwLock<Logging>>);

/// Passes the lines of the level in force, for the layer that writes this form.
#[derive(Debug)]
pub(super) struct Gate {
    dial: Dial,
    json: bool,
}

impl Dial {
    pub(super) fn new(logging: Logging) -> Self {
        Self(Arc::new(RwLock::new(logging)))
    }

    pub(super) fn logging(&self) -> Logging {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings, for lines that are written from now on.
    pub(super) fn turn(&self, change: impl FnOnce(&mut Logging)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
        // Each place that logs remembers whether anybody wants its lines.
        rebuild_interest_cache();
    }

    pub(super) fn gate(&self, json: bool) -> Gate {
        Gate { dial: self.clone(), json }
    }
}

impl Gate {
    fn passes(&self, metadata: &Metadata<'_>) -> bool {
        let logging = self.dial.logging();
        let level = filter(logging.level);
        // Libraries may name hosts and addresses at DEBUG; they speak only when something is wrong.
        let ours = metadata.target().split("::").next() == Some("sortie");
        let most = if ours { level } else { level.min(LevelFilter::WARN) };
        self.json == logging.json && *metadata.level() <= most
    }
}

impl<S: Subscriber> Filter<S> for Gate {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.passes(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.passes(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(filter(self.dial.logging().level))
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}
