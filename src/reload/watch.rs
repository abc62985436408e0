//! Says that something happened where a configuration is read from; whether it matters is for others to find out.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::source::reading::{RESOLV_CONF, Reading};

/// How long nothing must happen before a change counts as whole.
const QUIET: Duration = Duration::from_millis(250);
/// How long a change that does not end is waited for.
const LONGEST: Duration = Duration::from_secs(2);

/// Watches folders rather than files: a file that is replaced is another file, and the old one never changes again.
pub(super) struct Watch {
    clock: Arc<dyn Clock>,
    bell: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    places: BTreeSet<Place>,
    due: Option<Due>,
}

/// A path and the file or folder that it led to.
type Place = (PathBuf, u64, u64);

/// When a change is looked at.
#[derive(Clone, Copy)]
struct Due {
    quiet: Instant,
    latest: Instant,
}

impl Watch {
    /// Watches nothing yet.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let places = BTreeSet::new();
        Self { clock, bell: Arc::default(), watcher: None, places, due: None }
    }

    /// Watches what was read. Where folders were replaced since, it is like a change.
    pub(super) fn follow(&mut self, places: BTreeSet<Place>) {
        if places == self.places {
            return;
        }
        match self.watcher(&places) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                self.watcher = None;
                tracing::warn!(%error, "Folders cannot be watched, changes are seen every 10 s.");
            }
        }
        self.places = places;
        // What happened between the reading and now was seen by nobody.
        self.bell.notify_one();
    }

    fn watcher(&self, places: &BTreeSet<Place>) -> notify::Result<RecommendedWatcher> {
        let bell = self.bell.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // That a file was only looked at is no change; we look ourselves.
            let matters = event.map_or(true, |event| {
                !event.kind.is_access() || event.kind == CLOSED_AFTER_WRITING
            });
            if matters {
                bell.notify_one();
            }
        })?;
        for (path, ..) in places {
            watcher.watch(path, RecursiveMode::NonRecursive)?;
        }
        Ok(watcher)
    }

    /// Waits until something has happened and come to rest. May be dropped and asked again.
    pub(super) async fn changed(&mut self) {
        loop {
            match self.due {
                None => {
                    self.bell.notified().await;
                    let now = self.clock.now();
                    self.due = Some(Due { quiet: now + QUIET, latest: now + LONGEST });
                }
                Some(due) => {
                    tokio::select! {
                        () = self.bell.notified() => {
                            let quiet = self.clock.now() + QUIET;
                            self.due = Some(Due { quiet, ..due });
                        }
                        () = sleep_until(due.quiet.min(due.latest)) => {
                            self.due = None;
                            return;
                        }
                    }
                }
            }
        }
    }
}

const CLOSED_AFTER_WRITING: notify::EventKind =
    notify::EventKind::Access(notify::event::AccessKind::Close(notify::event::AccessMode::Write));

/// The folders of all files that were read and of those that may come, as they are named and as their links lead, and resolv.conf itself: its folder
/// is everybody's.
pub(super) fn places(reading: &Reading) -> BTreeSet<Place> {
    let mut paths = BTreeSet::from([PathBuf::from(RESOLV_CONF)]);
    paths.extend(reading.folders());
    for file in reading.files() {
        let links = std::fs::canonicalize(file);
        for file in [Some(file), links.as_deref().ok()].into_iter().flatten() {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            paths.insert(folder.unwrap_or(Path::new(".")).to_owned());
        }
    }
    let place = |path: PathBuf| {
        let found = std::fs::metadata(&path).ok()?;
        Some((path, found.dev(), found.ino()))
    };
    paths.into_iter().filter_map(place).collect()
}
