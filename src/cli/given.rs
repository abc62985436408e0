//! The arguments of a tool as they are given on a command line, and the call that is made of them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::cli::demo::folder::random_text;
use crate::model::call::{Arguments, CallContext, DEFAULT_WAIT, ToolCall};
use crate::model::id::{CallId, IdError, Token};
use crate::model::json::{self, JsonError};

/// A call's body may be no larger.
const LIMIT: usize = 1 << 20;

/// Why there are no arguments.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    /// They are no JSON object.
    #[error("the arguments in {place}: {error}")]
    Json {
        /// Where they stand.
        place: String,
        /// What is wrong.
        error: JsonError,
    },
    /// More than a call may have.
    #[error("the arguments in {place} are larger than 1 MiB")]
    Large {
        /// Where they stand.
        place: String,
    },
    /// The file is no text.
    #[error("the arguments in {place} are not UTF-8")]
    NotText {
        /// Where they stand.
        place: String,
    },
    /// The file cannot be read.
    #[error("{place} cannot be read: {error}; the arguments are a JSON object, or @FILE")]
    Unreadable {
        /// Where they should stand.
        place: String,
        /// What the operating system says.
        error: io::Error,
    },
}

/// Reads arguments: a JSON object, `@FILE`, a file's path, or `-` for standard input.
pub fn arguments(text: &str) -> Result<Arguments, GivenError> {
    let trimmed = text.trim_start();
    let is_json = trimmed.starts_with(['{', '[', '"']);
    let (place, read) = match text.strip_prefix('@').unwrap_or(text) {
        _ if is_json => return read_object("the command line", text),
        "-" => ("standard input".to_owned(), read_bounded(io::stdin())),
        path => {
            let read = File::open(Path::new(path)).and_then(read_bounded);
            (format!("the file `{path}`"), read)
        }
    };
    let bytes = read.map_err(|error| GivenError::Unreadable { place: place.clone(), error })?;
    if bytes.len() > LIMIT {
        return Err(GivenError::Large { place });
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => read_object(&place, text),
        Err(_) => Err(GivenError::NotText { place }),
    }
}

fn read_bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(LIMIT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_object(place: &str, text: &str) -> Result<Arguments, GivenError> {
    json::read_object(text).map_err(|error| GivenError::Json { place: place.to_owned(), error })
}

/// Where a call from a command line comes from; what is not given is made up, so that no call repeats another.
#[derive(Debug, Default)]
pub struct Origin<'a> {
    /// The run.
    pub run_id: Option<&'a str>,
    /// The step of the run.
    pub step: Option<&'a str>,
    /// The agent.
    pub agent_id: Option<&'a str>,
}

/// A call of a tool, marked as a test.
pub fn call(tool: &str, arguments: Arguments, origin: &Origin<'_>) -> Result<ToolCall, IdError> {
    let token = |given: Option<&str>, made_up: String| Token::parse(given.unwrap_or(&made_up));
    let context = CallContext {
        agent_id: origin.agent_id.map(str::to_owned),
        run_id: Some(token(origin.run_id, format!("run_{}", random_text(16)))?),
        step: Some(token(origin.step, "1".to_owned())?),
        test: true,
        ..CallContext::default()
    };
    Ok(ToolCall {
        id: CallId::from_random(rand::random_iter::<[u8; 32]>().flatten()),
        is_named: false,
        tool: tool.to_owned(),
        arguments,
        context: context.into(),
        deadline: None,
        wait: DEFAULT_WAIT,
        resend: false,
        credentials: Vec::new(),
        batch: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_json_or_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("arguments.json");
        std::fs::write(&path, "{ \"a\": 1e2 }\n").expect("written");
        let path = path.to_str().expect("UTF-8");
        for given in ["{\"a\":1e2}", " {\"a\": 1e2}", path, &format!("@{path}")] {
            assert_eq!(&arguments(given).expect(given).text()[..], b"{\"a\":1e2}");
        }
    }

    #[track_caller]
    fn refuses(given: &str, said: &str) {
        let error = arguments(given).expect_err(given).to_string();
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn what_is_no_object_is_refused_with_its_place() {
        refuses("[1]", "the command line: must be a JSON object");
        refuses("{\"a\":1,\"a\":2}", "`/a` stands twice");
        refuses("{", "the command line: not valid JSON");
        refuses("", "the file `` cannot be read");
        refuses("order=7", "the file `order=7` cannot be read");
        refuses("@/nowhere/at/all", "the arguments are a JSON object, or @FILE");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        for (bytes, said) in [
            (vec![b' '; LIMIT + 1], "larger than 1 MiB"),
            (vec![0xff], "not UTF-8"),
            (b"7".to_vec(), "must be a JSON object"),
        ] {
            std::fs::write(&path, bytes).expect("written");
            refuses(path.to_str().expect("UTF-8"), said);
        }
    }

    #[test]
    fn two_calls_are_never_the_same() {
        let call = || {
            let given = arguments("{}").expect("an object");
            call("a", given, &Origin::default()).expect("tokens")
        };
        let (one, other) = (call(), call());
        assert_ne!(one.id, other.id);
        assert_ne!(one.context.idempotency_key(), other.context.idempotency_key());
        let run_id = Some("with space");
        let given = arguments("{}").expect("an object");
        assert!(super::call("a", given, &Origin { run_id, ..Origin::default() }).is_err());
    }
}
