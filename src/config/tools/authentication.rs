//! Compiles how a tool's server is told who calls: `authentication` and `client_certificate`.

use std::sync::Arc;

use crate::config::basic::basic;
use crate::config::client_identity::{ClientIdentity, IdentityError};
use crate::config::given::{Entries, Given};
use crate::config::leaf::Verbatim;
use crate::config::raw_tool::{RawBasic, RawMethod, RawOauth2, RawReference};
use crate::config::tools::Compiler;
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;
use crate::policy::credentials::{self, CredentialError};
use crate::policy::oauth2::{Client, ClientAuthentication, TokenSource};
use crate::policy::wire::{OwnHeader, folded_name};

const REFERENCE: &str = "write {file: PATH} or {env: NAME}";
const AUTHORIZATION: &str = "authorization";

/// What `authentication` comes to: at most one of the two.
#[derive(Debug, Default)]
pub(super) struct Authentication {
    /// A header that stays the same.
    pub(super) header: Option<OwnHeader>,
    /// Where a header's token comes from.
    pub(super) tokens: Option<Arc<TokenSource>>,
}

impl Compiler<'_> {
    /// Every fault of it is told; what is wrong leaves nothing.
    pub(super) fn authentication(&mut self) -> Authentication {
        let Some((raw, node)) = self.raw.authentication.found() else {
            return Authentication::default();
        };
        let ways = [
            ("bearer", raw.bearer.node()),
            ("basic", raw.basic.node()),
            ("oauth2", raw.oauth2.node()),
        ];
        let mut given = ways.into_iter().filter_map(|(name, node)| Some((name, node?)));
        match given.next() {
            None => self.error(node, "says nothing, write `bearer`, `basic` or `oauth2`"),
            Some((first, _)) => given.for_each(|(_, node)| {
                self.error(node, format!("stands beside `{first}`, a server is told once"));
            }),
        }
        self.alone(node);
        let bearer = raw.bearer.found().and_then(|(reference, node)| {
            let token = self.secret(node, &reference.file, &reference.env)?;
            self.checked(node, credentials::bearer(&token))
        });
        let basic = raw.basic.found().and_then(|(raw, node)| self.basic(raw, node));
        let value = bearer.or(basic);
        let header = value.and_then(|value| {
            let header = OwnHeader::authorization(value);
            header.map_err(|error| self.error(node, error.to_string())).ok()
        });
        let tokens = raw.oauth2.found().and_then(|(raw, node)| self.tokens(raw, node));
        Authentication { header, tokens: tokens.map(Arc::new) }
    }

    /// The names of the tool's own headers, in the order in which they are sent.
    pub(super) fn header_names(&self) -> Vec<String> {
        let entries = self.raw.headers.get().map(|Entries(entries)| entries.as_slice());
        let own = entries.unwrap_or_default().iter().map(|(name, _)| name.clone());
        let first = self.raw.authentication.node().map(|_| "Authorization".to_owned());
        first.into_iter().chain(own).collect()
    }

    /// `Authorization` is sent once: not as a header of the file too, and not as one of a call.
    fn alone(&self, node: NodeId) {
        let headers = self.raw.headers.get().map(|Entries(entries)| entries.as_slice());
        let stands = |name: &str| folded_name(name) == AUTHORIZATION;
        if headers.unwrap_or_default().iter().any(|(name, _)| stands(name)) {
            self.error(node, "stands beside an `Authorization` of `headers`, one is enough");
        }
        let accepted = self.raw.accept_credentials.get().map(Vec::as_slice).unwrap_or_default();
        if accepted.iter().filter_map(Given::get).any(|name| stands(name)) {
            let message = "stands beside an `Authorization` of `accept_credentials`, \
                           it is either the tool's or the person's";
            self.error(node, message);
        }
    }

    fn checked(&self, node: NodeId, value: Result<Secret, CredentialError>) -> Option<Secret> {
        value.map_err(|error| self.error(node, error.to_string())).ok()
    }

    fn basic(&mut self, raw: &RawBasic, node: NodeId) -> Option<Secret> {
        let context = self.context;
        basic(context, raw, node, |password| {
            let (reference, node) = password.found()?;
            self.secret(node, &reference.file, &reference.env)
        })
    }

    fn tokens(&mut self, raw: &RawOauth2, node: NodeId) -> Option<TokenSource> {
        let context = self.context;
        let hint = "write the https URL of the token endpoint";
        let url = context.required(node, "token_url", &raw.token_url, hint);
        let endpoint = url.and_then(|(Verbatim(url), node)| self.judged(url, node));
        let hint = "the token endpoint knows the client by it";
        let id = context.required(node, "client_id", &raw.client_id, hint);
        context.required(node, "client_secret", &raw.client_secret, REFERENCE);
        let secret = raw
            .client_secret
            .found()
            .and_then(|(reference, node)| self.secret(node, &reference.file, &reference.env));
        let id = self.text(id);
        let scope = self.text(raw.scope.found());
        let audience = self.text(raw.audience.found());
        let method = match raw.method.get() {
            Some(RawMethod::Basic) | None => ClientAuthentication::Basic,
            Some(RawMethod::Post) => ClientAuthentication::Post,
        };
        let client = Client { id: id?, secret: &secret?, scope, audience, method };
        Some(TokenSource::new(endpoint?, &client))
    }

    fn text<'r>(&self, found: Option<(&'r Verbatim, NodeId)>) -> Option<&'r str> {
        let (Verbatim(text), node) = found?;
        if text.is_empty() || text.chars().any(char::is_control) {
            self.error(node, "must be text without control characters, and not empty");
        }
        Some(text)
    }

    /// The certificate that the tool's server is shown.
    pub(super) fn identity(&mut self) -> Option<Arc<ClientIdentity>> {
        let (raw, node) = self.raw.client_certificate.found()?;
        let (chain, key) = (&raw.chain, &raw.key);
        for (name, given) in [("chain", chain), ("key", key)] {
            self.context.required(node, name, given, REFERENCE);
        }
        let mut read = |given: &Given<RawReference>| {
            let (reference, node) = given.found()?;
            Some((self.secret(node, &reference.file, &reference.env), node))
        };
        let (chain, key) = (read(chain), read(key));
        let ((chain, chain_node), (key, key_node)) = (chain?, key?);
        let read = ClientIdentity::read(&chain?, &key?).map_err(|error| {
            let node = match error {
                IdentityError::Chain { .. } => chain_node,
                IdentityError::Encrypted | IdentityError::Key { .. } | IdentityError::Mismatch => {
                    key_node
                }
            };
            self.error(node, error.to_string());
        });
        read.ok().map(Arc::new)
    }
}
