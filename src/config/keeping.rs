//! Compiles `storage`: where calls and approvals are kept, what of them, and for how long.

use std::path::Path;
use std::time::Duration;

use crate::config::context::{Context, SecretProblem};
use crate::config::given::{Given, OneOf};
use crate::config::leaf::Verbatim;
use crate::config::raw_store::{RawKeep, RawStorage};
use crate::config::raw_tool::RawReference;
use crate::config::storage::{Capture, Keep, Storage, StoreUrl};
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest that anything is kept: ten years.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 60 * 60);
/// Finished calls that are kept where the file does not say it.
const CALLS_IN_MEMORY: u64 = 10_000;
const CALLS: u64 = 100_000;
const MOST_CALLS: u64 = 100_000_000;

/// Why a text is no place for a store. It may hold a password, so nothing of it is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum StoreUrlError {
    #[error("holds a password, put the url into a file: {{file: PATH}} or {{env: NAME}}")]
    Password,
    #[error(
        "must be sqlite:PATH with one `:` before the path, such as sqlite:/var/lib/sortie/sortie.db"
    )]
    Path,
    #[error("must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE")]
    Scheme,
}

/// Compiles the section.
pub fn compile(context: &Context<'_>, given: &Given<RawStorage>) -> Storage {
    let none = RawStorage::default();
    let raw = given.get().unwrap_or(&none);
    let url = raw.url.found().and_then(|(raw, node)| url(context, raw, node));
    // What is wrong is reported, and nothing is kept by it.
    let url = url.unwrap_or(StoreUrl::Memory);
    let max_calls = if url == StoreUrl::Memory { CALLS_IN_MEMORY } else { CALLS };
    let no_keep = RawKeep::default();
    let keep = raw.keep.get().unwrap_or(&no_keep);
    let span = |given, default| context.duration(given, default, MINUTE..=LONGEST);
    let most = keep.max_calls.found().map(|(count, node)| (*count, node));
    let keep = Keep {
        calls: span(&keep.calls, 7 * DAY),
        replay: span(&keep.replay, 24 * HOUR),
        audit: span(&keep.audit, 400 * DAY),
        max_calls: context.number(most, max_calls, 0..=MOST_CALLS),
    };
    Storage { url, capture: raw.capture.get().copied().unwrap_or(Capture::Full), keep }
}

fn url(
    context: &Context<'_>,
    raw: &OneOf<Verbatim, RawReference>,
    node: NodeId,
) -> Option<StoreUrl> {
    let (found, source) = match raw {
        OneOf::Short(Verbatim(text)) => {
            (place(text, context.folder(node), Password::Refused), None)
        }
        OneOf::Long(raw) => {
            let source = context.source(node, &raw.file, &raw.env)?;
            let secret = match context.secret(node, &source) {
                Ok(secret) => secret,
                Err(SecretProblem::Reported) => return None,
                Err(SecretProblem::Lookup(error)) => {
                    context.unreadable(node, &source, &error, "Sortie does not start without it");
                    return Some(StoreUrl::Lacking(format!("{source} {error}")));
                }
            };
            let text = std::str::from_utf8(secret.expose()).map_err(|_| StoreUrlError::Scheme);
            let folder = context.folder(node);
            (text.and_then(|text| place(text, folder, Password::Taken)), Some(source))
        }
    };
    let wrong = |error: StoreUrlError| {
        let message = match source {
            Some(source) => format!("{source} {error}"),
            None => error.to_string(),
        };
        context.report.error(node, message);
    };
    found.map_err(wrong).ok()
}

/// Whether a password may stand in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Password {
    Refused,
    Taken,
}

fn place(text: &str, folder: &Path, password: Password) -> Result<StoreUrl, StoreUrlError> {
    if let Some(path) = text.strip_prefix("sqlite:") {
        if path == ":memory:" {
            return Ok(StoreUrl::Memory);
        }
        let two_slashes = path.starts_with("//") && !path.starts_with("///");
        if path.is_empty() || two_slashes || path.ends_with('/') || path.contains(['?', '\0']) {
            return Err(StoreUrlError::Path);
        }
        return Ok(StoreUrl::Sqlite(folder.join(path)));
    }
    let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.filter(|rest| !rest.is_empty()).ok_or(StoreUrlError::Scheme)?;
    if password == Password::Refused && has_password(rest) {
        return Err(StoreUrlError::Password);
    }
    Ok(StoreUrl::Postgres(Secret::new(text)))
}

/// Whether one stands before the hosts, or among the parameters.
fn has_password(rest: &str) -> bool {
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let user = place.split('/').next().and_then(|authority| authority.rsplit_once('@'));
    let names = parameters.split('&').filter_map(|one| one.split('=').next());
    user.is_some_and(|(user, _)| user.contains(':'))
        || names.into_iter().any(|name| name.contains('%') || name.contains("password"))
}
