//! The table of what happens when a call has no result, against the code.

use std::collections::BTreeSet;
use std::time::Duration;

use sortie::limits::permit::verdict;
use sortie::model::outcome::{Failure, FailureCode, Sent};
use sortie::policy::breaker::Verdict;
use sortie::policy::retry::{Asked, AttemptEnd, Next, RetryPolicy, ToolTraits, next, retryable};

use super::page::Page;

/// The ends of attempts that a code is told for; none where nothing was tried.
fn ends(code: FailureCode) -> Vec<AttemptEnd> {
    use AttemptEnd::{
        BodyBroken, BodyTimeout, Broken, Connect, Dns, ResponseTimeout, Status, TlsHandshake,
        Unreadable, Unsent,
    };
    match code {
        FailureCode::BadBody => vec![Unreadable],
        FailureCode::HttpStatus => vec![Status(503)],
        FailureCode::NetworkError => vec![Dns, Connect, TlsHandshake, Unsent, Broken, BodyBroken],
        FailureCode::Redirect => vec![Status(302)],
        FailureCode::Timeout => vec![ResponseTimeout, BodyTimeout],
        FailureCode::BlockedHost => vec![AttemptEnd::Blocked],
        FailureCode::ApprovalExpired
        | FailureCode::ApprovalVoid
        | FailureCode::Cancelled
        | FailureCode::CircuitOpen
        | FailureCode::Denied
        | FailureCode::Internal
        | FailureCode::InvalidArguments
        | FailureCode::NotAllowedForKey
        | FailureCode::NotConfigured
        | FailureCode::NotOnAgent
        | FailureCode::NotRun
        | FailureCode::Overloaded
        | FailureCode::RateLimited
        | FailureCode::Rejected
        | FailureCode::ToolDisabled
        | FailureCode::UnknownTool => Vec::new(),
    }
}

/// Whether an attempt that ended so is repeated for a tool that can tell a repeat, where everything is wanted.
fn is_repeated(end: AttemptEnd) -> bool {
    let mut wants = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
    for word in ["network", "5xx", "408", "409", "425", "429"] {
        wants.want(word).expect("a known word");
    }
    let traits = ToolTraits { idempotent: true, read_only: true };
    let room = Duration::from_secs(60);
    matches!(next(&wants, traits, end, 1, Asked::default(), room, 0.0), Next::Retry { .. })
}

fn repeated(code: FailureCode) -> &'static str {
    let ends = ends(code);
    match (code, ends.iter().any(|end| is_repeated(*end))) {
        // The same code before anything was sent: DNS, connection, handshake.
        (FailureCode::Timeout, false) if is_repeated(AttemptEnd::Connect) => {
            "before anything was sent"
        }
        (_, true) => "where it is safe",
        (_, false) => "no",
    }
}

fn again(code: FailureCode) -> &'static str {
    let told = ToolTraits { idempotent: true, read_only: false };
    match code {
        // Refused before the executor: always the same call later.
        FailureCode::CircuitOpen | FailureCode::Overloaded | FailureCode::RateLimited => "yes",
        FailureCode::Cancelled => "where a repeat can be told",
        _ if ends(code).iter().any(|end| retryable(*end, told)) => "where a repeat can be told",
        _ => "no",
    }
}

fn circuit(code: FailureCode) -> &'static str {
    let of = |detail, http_status| {
        let sent = Sent::Answered;
        verdict(&Failure { detail, http_status, sent, ..Failure::not_sent(code, "") })
    };
    match code {
        FailureCode::HttpStatus => {
            assert_eq!([of(None, Some(404)), of(None, Some(429))], [Verdict::Answered; 2]);
            assert_eq!(of(None, Some(500)), Verdict::Failure);
            "5xx counts"
        }
        FailureCode::BadBody => {
            assert_eq!([of(Some("media"), None), of(Some("utf8"), None)], [Verdict::Answered; 2]);
            assert_eq!(of(Some("framing"), None), Verdict::Failure);
            "no HTTP counts"
        }
        _ => match of(None, None) {
            Verdict::Failure => "counts",
            Verdict::Answered | Verdict::Ignored => "no",
            Verdict::Success => panic!("{code:?} is no success"),
        },
    }
}

#[test]
fn every_code_has_its_row_and_the_row_is_true() {
    let rows = Page::read().section("### What happens when").rows();
    let shown: BTreeSet<Vec<String>> = rows.iter().map(|row| row[1..7].to_vec()).collect();
    let known = FailureCode::ALL.iter().map(|code| {
        let texts = [
            &format!("`{}`", code.as_str()),
            code.status().as_str(),
            code.fault().as_str(),
            repeated(*code),
            again(*code),
            circuit(*code),
        ];
        texts.map(str::to_owned).to_vec()
    });
    assert_eq!(shown, known.collect());
    for row in rows {
        assert!(row[7].ends_with('.') && !row[0].is_empty(), "a sentence for the model: {row:?}");
    }
}
