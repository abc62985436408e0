//! Who is told, by which ways and of what.

use crate::config::change::{Changes, Kind, Told, pairs};
use crate::config::diff::keeping::captured;
use crate::config::notifications::{MailSink, Notifications, Recipients, WebhookSink};
use crate::config::redact::without_query;
use crate::config::snapshot::Organisation;
use crate::config::tracing::Tracing;
use crate::model::notice::Event;

/// Compares organisations, and who answers for them.
pub(super) fn compare_organisations(
    changes: &mut Changes,
    old: &[Organisation],
    new: &[Organisation],
) {
    fn by_id(all: &[Organisation]) -> impl Iterator<Item = (&str, &Organisation)> {
        all.iter().map(|one| (one.id.as_str(), one))
    }
    for (id, old, new) in pairs(by_id(old), by_id(new)) {
        let path = format!("organisations.{id}");
        let (Some(old), Some(new)) = (old, new) else {
            // Without a caller it is a name.
            let word = |one: Option<&Organisation>| {
                Told::text(if one.is_some() { "there" } else { "none" })
            };
            changes.compare(Kind::Setting, path, &word(old), &word(new));
            continue;
        };
        let Organisation { id: _, admins } = old;
        let (before, after) = (Told::items(admins, "none"), Told::items(&new.admins, "none"));
        changes.compare(Kind::MailTo, format!("{path}.admins"), &before, &after);
    }
}

/// Compares what a collector of traces is told.
pub(super) fn compare_tracing(changes: &mut Changes, old: Option<&Tracing>, new: Option<&Tracing>) {
    let target = |tracing: Option<&Tracing>| {
        let endpoint = tracing.map(|tracing| without_query(&tracing.endpoint.to_string()));
        Told::text(endpoint.unwrap_or_else(|| "none".into()))
    };
    changes.compare(Kind::TraceTarget, "tracing.otlp.endpoint", &target(old), &target(new));
    let (Some(old), Some(new)) = (old, new) else { return };
    // Headers are references, and the resource is the environment's.
    let Tracing { endpoint: _, headers: _, sampling, capture, resource: _ } = old;
    let (before, after) = (captured(*capture), captured(new.capture));
    changes.compare(Kind::Capture, "tracing.otlp.capture", &before, &after);
    let (before, after) = (Told::text(sampling.ratio), Told::text(new.sampling.ratio));
    changes.compare(Kind::Setting, "tracing.otlp.sample", &before, &after);
}

/// Compares the ways by which people are told.
pub(super) fn compare(changes: &mut Changes, old: &Notifications, new: &Notifications) {
    let Notifications { webhook, mail } = old;
    let target = |sink: &Option<WebhookSink>| {
        Told::text(sink.as_ref().map_or("none".into(), |sink| {
            // What follows the `?` may be a token.
            without_query(&sink.endpoint.to_string())
        }))
    };
    let (before, after) = (target(webhook), target(&new.webhook));
    changes.compare(Kind::NotifyTarget, "notifications.webhook.url", &before, &after);
    let told = |events: &[Event]| {
        Told::text(events.iter().map(|event| event.as_str()).collect::<Vec<_>>().join(", "))
    };
    if let (Some(old), Some(new)) = (webhook, &new.webhook) {
        // Its keys are a reference, and how it signs is fixed.
        let WebhookSink { endpoint: _, scheme: _, keys: _, events } = old;
        let (before, after) = (told(events), told(&new.events));
        changes.compare(Kind::Setting, "notifications.webhook.events", &before, &after);
    }
    if let (Some(old), Some(new)) = (mail, &new.mail) {
        // The server is told as it is written, or is a reference.
        let MailSink { server: _, from, to, events } = old;
        let (before, after) = (Told::text(from), Told::text(&new.from));
        changes.compare(Kind::Setting, "notifications.smtp.from", &before, &after);
        let (before, after) = (recipients(to), recipients(&new.to));
        changes.compare(Kind::MailTo, "notifications.smtp.to", &before, &after);
        let (before, after) = (told(events), told(&new.events));
        changes.compare(Kind::Setting, "notifications.smtp.events", &before, &after);
    }
}

fn recipients(to: &Recipients) -> Told {
    match to {
        Recipients::Admins => Told::items(["admins"], "nobody"),
        Recipients::Listed(list) => Told::items(list, "nobody"),
    }
}
