//! One document of several texts: what a later text says changes what the one before says.
//!
//! Nothing is copied: every value keeps its place and its path in the text that it stands in.

use std::collections::{HashMap, HashSet};

use super::{Document, Kind, NodeId, push_key};

/// Lists whose items have a name, and the key that it stands under: they are merged item by item.
const NAMED: &[(&str, &str)] = &[
    ("agents", "id"),
    ("auth.certs", "name"),
    ("auth.keys", "name"),
    ("organisations", "id"),
    ("policies", "id"),
    ("profiles", "name"),
    ("tools", "name"),
];

/// Ways to say where a secret is: a later one stands for an earlier one.
const WAYS: &[&str] = &["env", "file", "sha256"];

impl Document {
    /// The first of two trees, changed by the second.
    pub(super) fn merge(&mut self, base: NodeId, more: NodeId) -> NodeId {
        self.merge_at("", base, more)
    }

    /// Mappings are merged key by key, lists with names item by item, and anything else is replaced.
    fn merge_at(&mut self, path: &str, base: NodeId, more: NodeId) -> NodeId {
        let kind = match (self.kind(base).clone(), self.kind(more).clone()) {
            (Kind::Map(entries), Kind::Map(later)) => {
                Kind::Map(self.merge_entries(path, entries, later))
            }
            (Kind::List(items), Kind::List(later)) if !later.is_empty() => {
                let Some((_, key)) = NAMED.iter().find(|(named, _)| *named == path) else {
                    return more;
                };
                Kind::List(self.merge_items(key, items, &later))
            }
            _ => return more,
        };
        self.nodes[base.index()].kind = kind;
        base
    }

    fn merge_entries(
        &mut self,
        path: &str,
        mut entries: Vec<(NodeId, NodeId)>,
        later: Vec<(NodeId, NodeId)>,
    ) -> Vec<(NodeId, NodeId)> {
        if later.iter().any(|entry| self.is_way(entry)) {
            entries.retain(|entry| !self.is_way(entry));
        }
        let names = entries.iter().enumerate();
        let mut places: HashMap<String, usize> =
            names.filter_map(|(at, (key, _))| Some((self.text(*key)?.to_owned(), at))).collect();
        for (key, value) in later {
            let name = self.text(key).unwrap_or_default().to_owned();
            match places.get(&name).and_then(|at| entries.get_mut(*at)) {
                Some((_, earlier)) => {
                    let mut below = path.to_owned();
                    push_key(&mut below, &name);
                    *earlier = self.merge_at(&below, *earlier, value);
                }
                None => {
                    places.insert(name, entries.len());
                    entries.push((key, value));
                }
            }
        }
        entries
    }

    fn is_way(&self, (key, value): &(NodeId, NodeId)) -> bool {
        let is_way = self.text(*key).is_some_and(|key| WAYS.contains(&key));
        is_way && !matches!(self.kind(*value), Kind::List(_) | Kind::Map(_))
    }

    /// An item of a name that stands already is merged into it. A second one of the same text stays for itself, so that it
    /// is told as one too many.
    fn merge_items(&mut self, key: &str, mut items: Vec<NodeId>, later: &[NodeId]) -> Vec<NodeId> {
        let name =
            |document: &Self, item| document.text(document.child(item, key)?).map(str::to_owned);
        let mut places = HashMap::new();
        for (at, item) in items.iter().enumerate() {
            if let Some(name) = name(self, *item) {
                places.entry(name).or_insert(at);
            }
        }
        let mut seen = HashSet::new();
        for item in later {
            let name = name(self, *item);
            let is_first = name.as_ref().is_none_or(|name| seen.insert(name.clone()));
            let place = name.and_then(|name| places.get(&name)).filter(|_| is_first);
            match place.and_then(|at| items.get_mut(*at)) {
                // Below an item no list has names.
                Some(earlier) => *earlier = self.merge_at("[]", *earlier, *item),
                None => items.push(*item),
            }
        }
        items
    }
}
