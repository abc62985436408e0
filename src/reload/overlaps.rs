//! Tells the operator, once each, that an overlap of two signing keys ends soon and that it has ended.

use std::collections::HashMap;

use crate::config::signing::KeyPair;
use crate::config::snapshot::Snapshot;

/// How long before its end an overlap is told of. Contract, section 2.
const SOON: i64 = 3600;
/// How long before its end people are told of it.
const DAY: i64 = 86_400;

/// What was told already.
#[derive(Debug, Default)]
pub(super) struct Overlaps(HashMap<(String, KeyPair), Stage>);

/// Where an overlap stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Both sign, and will for more than a day.
    Running,
    /// The previous key stops within a day.
    EndsInADay,
    /// The previous key stops within an hour.
    EndsSoon,
    /// The previous key has stopped.
    Ended,
}

/// What is to be told about one tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News<'a> {
    /// The tool.
    pub(super) tool: &'a str,
    /// Where its overlap stands now.
    pub(super) stage: Stage,
    /// When it ends, in Unix seconds.
    pub(super) until: i64,
    /// Whether it is the first time that its end is near.
    pub(super) is_first: bool,
}

impl Overlaps {
    /// What has changed since the last look. An overlap that had ended when it was first seen is no news: the
    /// configuration's warnings say so.
    pub(super) fn news<'a>(&mut self, snapshot: &'a Snapshot, now: i64) -> Vec<News<'a>> {
        let mut stages = HashMap::new();
        let mut news = Vec::new();
        for tool in snapshot.tools.values() {
            let Some(overlap) = &tool.signing.overlap else { continue };
            let stage = stage(overlap.until, now);
            let key = (tool.name.to_string(), overlap.pair);
            let is_near = matches!(stage, Stage::EndsInADay | Stage::EndsSoon);
            let is_first = is_near && self.0.get(&key).is_none_or(|told| *told == Stage::Running);
            let is_news = match self.0.get(&key) {
                None => is_near,
                Some(told) => stage > *told,
            };
            if is_news {
                news.push(News { tool: tool.name.as_str(), stage, until: overlap.until, is_first });
            }
            stages.insert(key, stage);
        }
        self.0 = stages;
        news.sort_by_key(|one| one.tool);
        news
    }
}

fn stage(until: i64, now: i64) -> Stage {
    match until.saturating_sub(now) {
        left if left <= 0 => Stage::Ended,
        left if left <= SOON => Stage::EndsSoon,
        left if left <= DAY => Stage::EndsInADay,
        _ => Stage::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::context::{Environment, Source, SourceError};
    use crate::config::parse::parse;
    use crate::model::secret::Secret;

    const START: i64 = 1_793_354_102;

    fn lookup(source: &Source) -> Result<Secret, SourceError> {
        Ok(Secret::new(format!("whsec_{source}_0123456789012345")))
    }

    fn snapshot(fields: &str) -> Snapshot {
        let text = format!(
            "{{version: 1, auth: none, tools: [{{name: one, description: Looks something up by its number., \
             url: 'https://shop.example.com/', secret: {{current: {{file: /new}}{fields}}}}}]}}"
        );
        let environment = Environment::bare(&lookup, START);
        parse("f", &text, &environment).unwrap_or_else(|found| panic!("{found}"))
    }

    #[test]
    fn each_end_is_told_once_before_and_once_after() {
        let snapshot = snapshot(", previous: {file: /old}");
        let until = START + 86_400;
        let mut overlaps = Overlaps::default();
        let mut check = |now: i64, expected: Option<Stage>| {
            let news = overlaps.news(&snapshot, now);
            let is_first = expected == Some(Stage::EndsInADay);
            let expected = expected.map(|stage| News { tool: "one", stage, until, is_first });
            assert_eq!(news, expected.into_iter().collect::<Vec<_>>(), "{now}");
        };
        check(START - 1, None);
        check(START, Some(Stage::EndsInADay));
        check(until - 3601, None);
        check(until - 3600, Some(Stage::EndsSoon));
        check(until - 1, None);
        check(until, Some(Stage::Ended));
        check(until + 86_400, None);
    }

    #[test]
    fn what_had_ended_when_it_was_first_seen_is_no_news() {
        let (one, two) = (snapshot(", previous: {file: /old}"), snapshot(""));
        let mut overlaps = Overlaps::default();
        let late = START + 90_000;
        assert_eq!(overlaps.news(&one, late), []);
        assert_eq!(overlaps.news(&two, late), []);
        let other = snapshot(", previous: {file: /older}");
        assert_eq!(overlaps.news(&other, START + 86_000).len(), 1, "another pair is news");
    }
}
