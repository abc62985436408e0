//! The metrics of the configuration in force and of its reloads.

use std::collections::BTreeSet;
use std::sync::Mutex;

use prometheus::{GaugeVec, IntCounter, IntGauge, IntGaugeVec};

use crate::config::snapshot::Snapshot;
use crate::telemetry::labels::ReloadOutcome;
use crate::telemetry::maker::Maker;

/// What the configuration in force is, and how the last look at its files ended.
#[derive(Debug)]
pub struct ConfigMetrics {
    reloads: [IntCounter; ReloadOutcome::ALL.len()],
    successful: IntGauge,
    succeeded_at: IntGauge,
    info: GaugeVec,
    hash: Mutex<Option<String>>,
    file_ok: IntGaugeVec,
    /// The labels of `file_ok`.
    file_labels: Mutex<BTreeSet<String>>,
    /// Tools in the configuration.
    pub tools: IntGauge,
    /// Warnings of the configuration.
    pub warnings: IntGauge,
    /// Secrets that could not be read when they were last looked for.
    pub secret_errors: IntGauge,
}

impl ConfigMetrics {
    /// Makes them.
    pub(super) fn new(make: &Maker<'_>) -> Self {
        let reloads = make.counters("config_reloads_total", "Reloads by result.", &["result"]);
        Self {
            reloads: ReloadOutcome::ALL.map(|ended| reloads.with_label_values(&[ended.as_str()])),
            successful: make.gauge(
                "config_last_reload_successful",
                "1 where the configuration in force is that of the files, broken included ones aside.",
            ),
            succeeded_at: make.gauge(
                "config_last_reload_success_timestamp_seconds",
                "When the files last were a configuration that could be taken.",
            ),
            info: make.infos("config_info", "The configuration in force.", &["hash"]),
            hash: Mutex::default(),
            file_ok: make.gauges(
                "config_file_ok",
                "1 where nothing is wrong with the text of a file.",
                &["file"],
            ),
            file_labels: Mutex::default(),
            tools: make.gauge("config_tools", "Tools in the configuration."),
            warnings: make.gauge("config_warnings", "Warnings of the configuration."),
            secret_errors: make.gauge("secret_errors", "Secrets that could not be read."),
        }
    }

    /// Notes which configuration is in force.
    pub fn in_force(&self, hash: &str) {
        let mut before = self.hash.lock().expect("no panic holds this lock");
        self.info.with_label_values(&[hash]).set(1.0);
        if let Some(before) = before.replace(hash.to_owned()).filter(|before| before != hash) {
            // An error means that it is gone already.
            let _ = self.info.remove_label_values(&[&before]);
        }
    }

    /// Shows how the files of a configuration stand.
    pub fn files(&self, snapshot: &Snapshot) {
        let mut labels = self.file_labels.lock().expect("no panic holds this lock");
        let before = std::mem::take(&mut *labels);
        for file in &snapshot.files {
            self.file_ok.with_label_values(&[&file.label]).set(i64::from(file.is_ok()));
            labels.insert(file.label.clone());
        }
        for gone in before.difference(&labels) {
            // An error means that it is gone already.
            let _ = self.file_ok.remove_label_values(&[gone]);
        }
    }

    /// Notes that something is wrong with these files.
    pub fn broken(&self, files: &[String]) {
        let labels = self.file_labels.lock().expect("no panic holds this lock");
        for file in files.iter().filter(|file| labels.contains(*file)) {
            self.file_ok.with_label_values(&[file]).set(0);
        }
    }

    /// Notes that the files are the configuration in force, at this Unix second.
    pub fn succeeded(&self, unix_seconds: i64) {
        self.successful.set(1);
        self.succeeded_at.set(unix_seconds);
    }

    /// Counts a reload by how it ended.
    pub fn reloaded(&self, ended: ReloadOutcome, unix_seconds: i64) {
        self.reloads[ended as usize].inc();
        match ended {
            ReloadOutcome::Applied | ReloadOutcome::Unchanged => self.succeeded(unix_seconds),
            ReloadOutcome::Invalid | ReloadOutcome::NeedsRestart => self.successful.set(0),
        }
    }
}
