//! Compiles a tool's own headers, and those that a call may bring.

use std::collections::HashSet;

use crate::config::given::{Entries, Given};
use crate::config::leaf::Verbatim;
use crate::config::raw_tool::RawHeader;
use crate::config::tools::{Compiler, MAX_HEADERS};
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;
use crate::policy::wire::{HeaderError, OwnHeader, TRACEPARENT, WireProfile, folded_name};

const SAME_NAME: &str = "stands twice: letter case makes no difference, nor does `_` for `-`";

impl Compiler<'_> {
    pub(super) fn headers(&mut self, profile: &WireProfile) -> Vec<OwnHeader> {
        let Some((Entries(entries), node)) = self.raw.headers.found() else { return Vec::new() };
        if entries.len() > MAX_HEADERS {
            self.error(node, format!("must be {MAX_HEADERS} at most, not {}", entries.len()));
        }
        let mut names = HashSet::new();
        let mut headers = Vec::new();
        for (name, given) in entries {
            let place = given.node();
            if let Err(HeaderError::Name) = profile.check_own_name(name) {
                // The path would repeat it, and it may be a whole header with its value.
                let message =
                    "has a key that is not a header name; a name has letters, digits and `-`";
                self.context.report.error_inside(node, place.unwrap_or(node), message);
                continue;
            }
            let Some(node) = place else {
                self.context.report.missing(
                    node,
                    name,
                    "has no value, write {file: PATH} or {env: NAME}",
                );
                continue;
            };
            if !names.insert(folded_name(name)) {
                self.error(node, SAME_NAME);
            } else if let Err(error) = profile.check_own_name(name) {
                self.error(node, error.to_string());
            } else if let Some(raw) = given.get() {
                headers.extend(self.header(profile, name, raw, node));
            }
        }
        headers
    }

    fn header(
        &mut self,
        profile: &WireProfile,
        name: &str,
        raw: &RawHeader,
        node: NodeId,
    ) -> Option<OwnHeader> {
        let secret = self.secret(node, &raw.file, &raw.env)?;
        let prefix = raw.prefix.get().map(|Verbatim(prefix)| prefix.as_str()).unwrap_or_default();
        let value = Secret::new([prefix.as_bytes(), secret.expose()].concat());
        let header = profile.check_own_header(name, value);
        header.map_err(|error| self.error(node, error.to_string())).ok()
    }

    /// Whether the tool's server is told the trace: by a header that nobody else may send then.
    pub(super) fn forward_trace(&self, profile: &WireProfile) -> bool {
        let Some((true, node)) = self.raw.forward_trace.found() else { return false };
        let own = self.raw.headers.get().map(|Entries(entries)| entries.as_slice());
        let own = own.unwrap_or_default().iter().map(|(name, _)| name);
        let credentials = self.raw.accept_credentials.get().into_iter().flatten();
        let mut names = own.chain(credentials.filter_map(Given::get));
        if names.any(|name| folded_name(name) == TRACEPARENT) {
            let message = "makes the gateway send `traceparent`: leave that header out";
            self.error(node, message);
        } else if let Err(error) = profile.check_own_name(TRACEPARENT) {
            self.error(node, error.to_string());
        }
        true
    }

    pub(super) fn accept_credentials(&self, profile: &WireProfile) -> Vec<String> {
        let Some((list, node)) = self.raw.accept_credentials.found() else { return Vec::new() };
        if list.len() > MAX_HEADERS {
            self.error(node, format!("must be {MAX_HEADERS} names at most, not {}", list.len()));
        }
        let own =
            self.raw.headers.get().map(|Entries(entries)| entries.as_slice()).unwrap_or_default();
        let mut names = HashSet::new();
        for (name, node) in list.iter().filter_map(Given::found) {
            if !names.insert(folded_name(name)) {
                self.error(node, SAME_NAME);
            } else if let Err(error) = profile.check_own_name(name) {
                self.error(node, error.to_string());
            } else if own.iter().any(|(own, _)| folded_name(own) == folded_name(name)) {
                self.error(
                    node,
                    format!(
                        "`{name}` stands in `headers` too, it is either the tool's or the person's"
                    ),
                );
            }
        }
        list.iter().filter_map(Given::get).cloned().collect()
    }
}
