//! Calls as a running gateway keeps them, asked of its api listener.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cli::calls::line::Line;
use crate::cli::client::Ask;
use crate::cli::exit::fail;
use crate::cli::listener::Listener;
use crate::model::outcome::Phase;
use crate::model::time::rfc3339;

/// As many as one answer holds.
const MOST: &str = "1000";

/// Which calls are asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    pub(super) tool: Option<&'a str>,
    pub(super) session_id: Option<&'a str>,
    pub(super) run_id: Option<&'a str>,
    pub(super) since_ms: Option<i64>,
}

/// One call: what is shown of it, and itself as JSON.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) line: Line,
    pub(super) json: String,
}

/// A call as the API tells it; another version may tell more.
#[derive(Debug, Deserialize)]
struct Call {
    id: String,
    tool: String,
    status: String,
    error: Option<Failure>,
    attempts: Vec<serde::de::IgnoredAny>,
    duration_ms: u64,
    created_at: String,
    finished_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Failure {
    code: String,
    outcome: Option<String>,
}

/// Asks once: the newest that fit, the oldest of them first.
pub(super) fn ask(listener: &Listener, wanted: Wanted<'_>) -> Result<Vec<Stored>, u8> {
    #[derive(Deserialize)]
    struct Page {
        data: Vec<Box<RawValue>>,
    }
    let text = listener.ask_for(Ask::get(&wanted.path()))?;
    let read = serde_json::from_str::<Page>(&text).and_then(|page| {
        page.data.into_iter().map(|call| Stored::read(call.get())).collect::<Result<Vec<_>, _>>()
    });
    read.map_err(|error| {
        fail(&format!("{} does not answer as Sortie does: {error}", listener.place))
    })
}

impl Wanted<'_> {
    fn path(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let since = self.since_ms.map(rfc3339);
        let parameters = [
            ("tool", self.tool),
            ("session_id", self.session_id),
            ("run_id", self.run_id),
            ("since", since.as_ref().map(|since| since.as_str())),
            ("limit", Some(MOST)),
        ];
        for (name, value) in parameters {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        format!("/v1/calls?{}", query.finish())
    }
}

impl Stored {
    fn read(json: &str) -> serde_json::Result<Self> {
        let call: Call = serde_json::from_str(json)?;
        let is_final = Phase::parse(&call.status).is_none_or(Phase::is_final);
        let (code, outcome) = match call.error {
            Some(Failure { code, outcome }) => (code, outcome),
            None => (if is_final { "ok" } else { "-" }.to_owned(), None),
        };
        let line = Line {
            ts: call.finished_at.unwrap_or(call.created_at),
            call_id: call.id,
            tool: call.tool,
            status: call.status,
            code,
            outcome,
            attempts: u64::try_from(call.attempts.len()).unwrap_or(u64::MAX),
            duration_ms: call.duration_ms,
        };
        Ok(Self { line, json: json.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_what_is_wanted() {
        let all = Wanted::default();
        assert_eq!(all.path(), "/v1/calls?limit=1000");
        let some = Wanted { tool: Some("a b"), since_ms: Some(0), ..all };
        let path = "/v1/calls?tool=a+b&since=1970-01-01T00%3A00%3A00.000Z&limit=1000";
        assert_eq!(some.path(), path);
    }

    #[test]
    fn a_call_that_waits_has_no_code_yet() {
        let json = r#"{"id":"call_1","tool":"refund","status":"waiting_approval","error":null,"attempts":[],
            "duration_ms":7,"created_at":"2026-10-30T09:55:02.000Z","finished_at":null}"#;
        let line = Stored::read(json).expect("a call").line;
        assert_eq!((line.ts.as_str(), line.code.as_str()), ("2026-10-30T09:55:02.000Z", "-"));
        let ended = json
            .replace("waiting_approval", "failed")
            .replace(r#""error":null"#, r#""error":{"code":"timeout","outcome":"unknown"}"#);
        let line = Stored::read(&ended).expect("a call").line;
        assert_eq!((line.code.as_str(), line.outcome.as_deref()), ("timeout", Some("unknown")));
        assert!(Stored::read("{}").is_err());
    }
}
