//! What is kept of calls, how many make a reply, and how long they wait.

use serde_json::Value;

use crate::config::change::{Changes, Kind, Told};
use crate::config::snapshot::{Rounds, Waiting};
use crate::config::storage::{Capture, Keep, Storage};

/// What records of calls hold, as it is compared.
pub(super) fn captured(capture: Capture) -> Told {
    Told::number(u8::from(capture == Capture::Full), capture.as_str())
}

/// Compares how many calls make a reply.
pub(super) fn compare_rounds(changes: &mut Changes, old: Rounds, new: Rounds) {
    let Rounds { calls_per_round, max_rounds } = old;
    let mut count = |key: &str, old: u32, new: u32| {
        let (old, new) = (Told::number(old, old), Told::number(new, new));
        changes.compare(Kind::CallsInRound, format!("limits.{key}"), &old, &new);
    };
    count("calls_per_round", calls_per_round, new.calls_per_round);
    count("max_rounds", max_rounds, new.max_rounds);
}

/// Compares how long calls wait.
pub(super) fn compare_waiting(changes: &mut Changes, old: Waiting, new: Waiting) {
    let Waiting { confirm_for, dispatch_within } = old;
    let mut time = |key: &str, old, new| {
        let (old, new) = (Told::time(old), Told::time(new));
        changes.compare(Kind::Timeout, format!("limits.{key}"), &old, &new);
    };
    time("confirm_for", confirm_for, new.confirm_for);
    time("dispatch_within", dispatch_within, new.dispatch_within);
}

/// Compares what is kept, and how long.
pub(super) fn compare_storage(changes: &mut Changes, old: &Storage, new: &Storage) {
    // Where is told as it is written: what a relative path leads to depends on where the file lies.
    let Storage { url: _, capture, keep } = old;
    changes.compare(Kind::Capture, "storage.capture", &captured(*capture), &captured(new.capture));
    let Keep { calls, replay, audit, max_calls } = *keep;
    let mut time = |kind, key: &str, old, new| {
        let (old, new) = (Told::time(old), Told::time(new));
        changes.compare(kind, format!("storage.keep.{key}"), &old, &new);
    };
    time(Kind::Setting, "calls", calls, new.keep.calls);
    time(Kind::Setting, "replay", replay, new.keep.replay);
    time(Kind::AuditTime, "audit", audit, new.keep.audit);
    let (before, after) = (Told::text(max_calls), Told::text(new.keep.max_calls));
    changes.compare(Kind::Setting, "storage.keep.max_calls", &before, &after);
}

/// Compares the places that are written as such; those of secrets are told among the references.
pub(super) fn compare_written(changes: &mut Changes, old: &Value, new: &Value) {
    let place = |all: &Value, pointer: &str| match all.pointer(pointer) {
        None | Some(Value::Null) => Some(Told::text("none")),
        Some(Value::String(text)) => Some(Told::text(text)),
        Some(_) => None,
    };
    for (kind, pointer, path) in [
        (Kind::Setting, "/storage/url", "storage.url"),
        (Kind::NotifyTarget, "/notifications/smtp/url", "notifications.smtp.url"),
    ] {
        if let (Some(old), Some(new)) = (place(old, pointer), place(new, pointer)) {
            changes.compare(kind, path, &old, &new);
        }
    }
}
