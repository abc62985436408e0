//! The wire formats that tools choose from: the shipped ones, the main file's, and those of an included file for its own
//! tools.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::names::{Names, Taken};
use crate::config::profile::{self, RawProfile};
use crate::policy::wire::WireProfile;

/// The wire formats by name.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    /// The format of a tool that names none.
    pub default: String,
    /// All of them.
    pub by_name: HashMap<String, Arc<WireProfile>>,
    /// Names of formats that have errors of their own, so that their tools are not blamed.
    pub broken: HashSet<String>,
}

impl Profiles {
    /// The shipped ones.
    pub fn shipped() -> Self {
        let mut profiles = Self::default();
        for profile in profile::builtin() {
            if profiles.by_name.is_empty() {
                profiles.default.clone_from(&profile.name);
            }
            profiles.by_name.insert(profile.name.clone(), Arc::new(profile));
        }
        profiles
    }

    /// Compiles those of a file. `taken` are names of other files; the names of this one come back.
    pub fn add(
        &mut self,
        context: &Context<'_>,
        given: &Given<Vec<Given<RawProfile>>>,
        taken: &Names,
    ) -> Names {
        let mut names = Names::default();
        let list = given.get().map(Vec::as_slice).unwrap_or_default();
        for given in list {
            let Some(node) = given.node() else { continue };
            let Some(raw) = given.get() else {
                // It was not read, and its tools are not to blame.
                let name = context.report.document.child(node, "name");
                self.broken.extend(
                    name.and_then(|name| context.report.document.text(name)).map(str::to_owned),
                );
                continue;
            };
            let compiled = profile::compile(context.report, node, raw);
            let Some((name, name_node)) = raw.name.found() else { continue };
            if let Some(Taken { place, .. }) = taken.taken(context.report, name, name_node) {
                let message =
                    format!("another profile is named `{name}` too, {place}, choose another name");
                context.report.error(name_node, message);
                continue;
            }
            match (compiled, self.by_name.entry(name.clone())) {
                (_, Entry::Occupied(_)) => {
                    let message =
                        format!("another profile is named `{name}` too, choose another name");
                    context.report.error(name_node, message);
                }
                (compiled, Entry::Vacant(place)) => {
                    // One that stands twice is occupied.
                    let _ = names.take(context.report, name, name, name_node);
                    match compiled {
                        Some(profile) => drop(place.insert(Arc::new(profile))),
                        None => drop(self.broken.insert(name.clone())),
                    }
                }
            }
        }
        names
    }
}
