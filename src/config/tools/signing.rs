//! Compiles a tool's `secret`: the keys that sign, and how long two of them overlap.

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::config::context::Source;
use crate::config::given::Given;
use crate::config::leaf::Moment;
use crate::config::raw_tool::{RawLast, RawReference, RawSecret};
use crate::config::signing::{KeyPair, Overlap, Signing};
use crate::config::tools::Compiler;
use crate::config::yaml::NodeId;
use crate::model::id::ToolName;
use crate::model::secret::Secret;
use crate::policy::sign::SignatureScheme;
use crate::policy::wire::WireProfile;

const DAY: i64 = 86_400;
/// How long both keys sign where the file does not say it. Contract, section 2.
const DEFAULT_OVERLAP: i64 = DAY;
const MAX_OVERLAP: i64 = 7 * DAY;

/// When the previous key stops signing.
enum End {
    /// A day after the load that first saw the two keys together.
    AfterADay,
    /// At this Unix second.
    At(i64),
}

/// A tool's keys as they were read; what could not be read is reported.
struct Found {
    current: Option<Secret>,
    previous: Option<Secret>,
    last: Option<RawLast>,
    /// `None` where there is no previous key, or its end is wrong.
    end: Option<End>,
    /// What the end of the previous key is said of, and how.
    over: Option<(NodeId, &'static str)>,
}

impl Compiler<'_> {
    /// The keys; `None` where their configuration is wrong.
    pub(super) fn signing(
        &mut self,
        profile: &WireProfile,
        name: Option<&ToolName>,
    ) -> Option<Signing> {
        match (profile.signature(), self.raw.secret.node()) {
            (None, None) => Some(Signing::default()),
            (None, Some(node)) => {
                self.error(node, format!("profile {} signs nothing, leave it out", profile.name));
                None
            }
            (Some(scheme), None) => match self.home.secrets {
                // A name that is wrong is told as such, and leads to no file.
                Some(folder) => self.signing_keys_in(scheme, folder, name?),
                None => {
                    let message = format!(
                        "is missing, profile {} signs: write {{current: {{file: PATH}}}}",
                        profile.name
                    );
                    self.context.report.missing(self.node, "secret", message);
                    None
                }
            },
            (Some(scheme), Some(_)) => {
                let (raw, node) = self.raw.secret.found()?;
                self.signing_keys(scheme, raw, node)
            }
        }
    }

    fn signing_keys(
        &mut self,
        scheme: &SignatureScheme,
        raw: &RawSecret,
        node: NodeId,
    ) -> Option<Signing> {
        let hint = "write {file: PATH} or {env: NAME}";
        self.context.required(node, "current", &raw.current, hint);
        let end = self.overlap_end(raw);
        let current = self.signing_key(scheme, &raw.current);
        let previous = self.signing_key(scheme, &raw.previous);
        let over = match raw.previous_until.node() {
            Some(node) => Some((node, "has passed, the previous key")),
            None => raw.previous.node().map(|node| (node, "was taken for a day, it")),
        };
        self.joined(
            scheme,
            node,
            Found { current, previous, last: raw.last.get().copied(), end, over },
        )
    }

    /// The same for a tool without `secret`: its keys are in the files of its name.
    fn signing_keys_in(
        &mut self,
        scheme: &SignatureScheme,
        folder: &Path,
        name: &ToolName,
    ) -> Option<Signing> {
        let (context, node) = (self.context, self.node);
        let source = Source::File(folder.join(format!("{name}.secret")));
        let found = self.present(node, &source, context.secret(node, &source));
        let current = found.and_then(|key| self.accepted(scheme, node, key));
        let source = Source::OptionalFile(folder.join(format!("{name}.previous")));
        let found = context.optional_secret(node, &source).transpose();
        let found = found.and_then(|found| self.present(node, &source, found));
        let previous = found.and_then(|key| self.accepted(scheme, node, key));
        let over = Some((node, "has a key NAME.previous for more than a day, it"));
        let end = Some(End::AfterADay);
        self.joined(scheme, node, Found { current, previous, last: None, end, over })
    }

    fn joined(&mut self, scheme: &SignatureScheme, node: NodeId, found: Found) -> Option<Signing> {
        let Found { current, previous, last, end, over } = found;
        if self.unavailable.is_some() {
            return Some(Signing::default());
        }
        let current = current?;
        // Both may be one for a moment while the two files are exchanged: it signs once.
        let previous = previous.filter(|previous| *previous != current);
        let pair = previous.as_ref().map(|previous| pair(&current, previous));
        let both = match (previous, last) {
            (None, _) => None,
            (Some(previous), Some(RawLast::Previous) | None) => Some([current.clone(), previous]),
            (Some(previous), Some(RawLast::Current)) => Some([previous, current.clone()]),
        };
        let prepare = |secrets: &[Secret]| {
            scheme.prepare(secrets).map_err(|error| self.error(node, error.to_string())).ok()
        };
        let overlap = match both.zip(pair) {
            Some((both, pair)) => {
                let keys = prepare(&both)?;
                let since = self.since(pair);
                let until = match end? {
                    End::AfterADay => since.saturating_add(DEFAULT_OVERLAP),
                    End::At(until) => until,
                };
                self.warn_if_over(over, until);
                Some(Overlap { keys, pair, since, until })
            }
            None => None,
        };
        Some(Signing { keys: prepare(&[current])?, overlap })
    }

    fn signing_key(
        &mut self,
        scheme: &SignatureScheme,
        given: &Given<RawReference>,
    ) -> Option<Secret> {
        let (raw, node) = given.found()?;
        let secret = self.secret(node, &raw.file, &raw.env)?;
        self.accepted(scheme, node, secret)
    }

    fn accepted(&self, scheme: &SignatureScheme, node: NodeId, secret: Secret) -> Option<Secret> {
        match scheme.accept_key(&secret) {
            Ok(warning) => {
                if let Some(warning) = warning {
                    self.context.report.warn(node, warning.to_string());
                }
                Some(secret)
            }
            Err(error) => {
                self.error(node, error.to_string());
                None
            }
        }
    }

    /// When these two were first seen together: a new pair begins anew.
    fn since(&self, pair: KeyPair) -> i64 {
        let environment = self.context.environment;
        let tool = self.raw.name.get().map(String::as_str).unwrap_or_default();
        let known = environment.earlier.and_then(|earlier| earlier.overlap_since(tool, pair));
        known.unwrap_or(environment.unix_seconds)
    }

    fn warn_if_over(&self, over: Option<(NodeId, &str)>, until: i64) {
        if until > self.context.environment.unix_seconds {
            return;
        }
        if let Some((node, what)) = over {
            let message = format!("{what} no longer signs and can be removed");
            self.context.report.warn(node, message);
        }
    }

    /// When the previous key stops signing; `None` where there is none, or its end is wrong.
    fn overlap_end(&self, raw: &RawSecret) -> Option<End> {
        if raw.previous.node().is_none() {
            for node in [raw.last.node(), raw.previous_until.node()].into_iter().flatten() {
                self.error(node, "means nothing without `previous`");
            }
            return None;
        }
        let now = self.context.environment.unix_seconds;
        let Some(node) = raw.previous_until.node() else {
            return Some(End::AfterADay);
        };
        let Moment(until) = *raw.previous_until.get()?;
        if until > now.saturating_add(MAX_OVERLAP) {
            self.error(node, "must be 7 days ahead at most");
        }
        Some(End::At(until))
    }
}

/// Of the keys themselves, whichever of the two is the new one.
fn pair(one: &Secret, other: &Secret) -> KeyPair {
    let mut digests = [one, other].map(|key| Sha256::digest(key.expose()));
    digests.sort_unstable();
    KeyPair(Sha256::digest(digests.concat()).into())
}
