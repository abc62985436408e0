//! What a tool is to providers of models: made once, when it is compiled.

use crate::config::given::Given;
use crate::config::json;
use crate::config::tools::Compiler;
use crate::model::json_tree::Tree;
use crate::policy::export::{Exports, Facts, Hints};

impl Compiler<'_> {
    /// The schema as it is written.
    pub(in crate::config) fn parameters(&self) -> Option<Tree> {
        let given = [&self.raw.parameters, &self.raw.input].into_iter().find_map(Given::found);
        given.map(|(_, node)| json::tree(self.context.report.document, node))
    }

    /// The tool's definitions for providers.
    pub(in crate::config) fn exports(
        &self,
        name: &str,
        description: &str,
        parameters: Option<&Tree>,
    ) -> Exports {
        let said = |given: &Given<bool>| given.get().copied();
        let hints = self.raw.annotations.get().map(|raw| Hints {
            read_only: said(&raw.read_only),
            destructive: said(&raw.destructive),
            idempotent: said(&raw.idempotent),
        });
        let hints = hints.unwrap_or_default();
        Exports::new(&Facts { name, description, parameters, hints })
    }
}
