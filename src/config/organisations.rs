//! Compiles `organisations`: which there are, and who answers for each.

use std::collections::HashSet;

use crate::config::context::Context;
use crate::config::given::{Given, List};
use crate::config::raw_notify::RawOrganisation;
use crate::config::read::choice;
use crate::config::snapshot::Organisation;
use crate::config::yaml::NodeId;
use crate::model::id::DEFAULT_ORGANISATION;
use crate::policy::mail::MailAddress;

const MAX_ID: usize = 64;

/// Compiles the list; where there is none, there is one organisation, `default`.
pub fn compile(context: &Context<'_>, given: &List<RawOrganisation>) -> Vec<Organisation> {
    let Some((list, node)) = given.found() else {
        return vec![Organisation { id: DEFAULT_ORGANISATION.into(), admins: Vec::new() }];
    };
    if list.is_empty() {
        context.report.error(node, "is empty, name one or leave it out for `default` alone");
    }
    let mut ids = HashSet::new();
    let each = list.iter().filter_map(Given::found);
    each.filter_map(|(raw, node)| organisation(context, raw, node, &mut ids)).collect()
}

/// The organisation that a caller names, `default` where it names none; `map` is the caller.
pub fn of_caller(
    context: &Context<'_>,
    organisations: &[Organisation],
    map: NodeId,
    given: &Given<String>,
) -> String {
    let mut known: Vec<&str> = organisations.iter().map(|one| one.id.as_str()).collect();
    known.dedup();
    let id = given.get().map_or(DEFAULT_ORGANISATION, String::as_str);
    if !known.contains(&id) && !known.is_empty() {
        match given.found() {
            Some((id, node)) => context.report.error(node, choice(id, &known)),
            None if given.node().is_none() => {
                let message = format!("is missing, {}", choice(DEFAULT_ORGANISATION, &known));
                context.report.missing(map, "organisation", message);
            }
            None => {}
        }
    }
    id.to_owned()
}

fn organisation<'g>(
    context: &Context<'_>,
    raw: &'g RawOrganisation,
    node: NodeId,
    ids: &mut HashSet<&'g str>,
) -> Option<Organisation> {
    let id = context.required(node, "id", &raw.id, "callers name it");
    let admins = raw.admins.get().map(Vec::as_slice).unwrap_or_default();
    let admins = admins.iter().filter_map(Given::found).filter_map(|(text, node)| {
        MailAddress::parse(text).map_err(|error| context.report.error(node, error.to_string())).ok()
    });
    let admins = admins.collect();
    let (id, node) = id?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let fits = id.starts_with(|c: char| c.is_ascii_lowercase()) && id.chars().all(is_plain);
    if !fits || id.len() > MAX_ID {
        let message = format!(
            "must be 1 to {MAX_ID} lower-case letters, digits, `-` and `_`, and begin with a letter"
        );
        context.report.error(node, message);
    } else if !ids.insert(id) {
        context.report.error(node, format!("another organisation is named `{id}` too"));
    }
    Some(Organisation { id: id.clone(), admins })
}
