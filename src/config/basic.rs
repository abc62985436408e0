//! Compiles a user and a password to the value of a header.

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::leaf::Verbatim;
use crate::config::raw_tool::{RawBasic, RawReference};
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;
use crate::policy::credentials;

/// Checks a user and a password where both can be read; `read` says what becomes of a password that cannot.
pub fn basic<'r>(
    context: &Context<'_>,
    raw: &'r RawBasic,
    node: NodeId,
    read: impl FnOnce(&'r Given<RawReference>) -> Option<Secret>,
) -> Option<Secret> {
    let user = context.required(node, "user", &raw.user, "write the user's name");
    let user = user.and_then(|(Verbatim(user), node)| {
        let checked = credentials::check_user(user);
        checked.map_err(|error| context.report.error(node, error.to_string())).ok()?;
        Some(user)
    });
    let hint = "write {file: PATH} or {env: NAME}";
    context.required(node, "password", &raw.password, hint);
    let (_, node) = raw.password.found()?;
    let password = read(&raw.password)?;
    let checked = credentials::check_password(&password);
    checked.map_err(|error| context.report.error(node, error.to_string())).ok()?;
    Some(credentials::basic(user?, &password))
}
