//! What a server's answers say about it: a function of what was sent and what came back.

use crate::gateway::recent::PastFailure;
use crate::model::outcome::CallOutcome;

/// What a profile signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signs {
    Body,
    BodyAndTime,
    Nothing,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    Good,
    WrongSignature,
    StaleTime,
}

impl Probe {
    /// The requests that make sense for a profile.
    pub(super) fn of(signs: Signs) -> Vec<Self> {
        match signs {
            Signs::Nothing => vec![Self::Good],
            Signs::Body => vec![Self::Good, Self::WrongSignature],
            Signs::BodyAndTime => vec![Self::Good, Self::WrongSignature, Self::StaleTime],
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Good => "As it should be",
            Self::StaleTime => "Signed with the secret, ten minutes ago",
            Self::WrongSignature => "Signed with another secret",
        }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// 2xx.
    Accepted(u16),
    /// Any other status that says something about the request.
    Refused(u16),
    /// 2xx, and the rest of the answer cannot be used.
    Unusable(u16),
    /// No status, or one that says to come later or that somebody before the server gives: why.
    Untold(String),
}

impl Seen {
    pub(super) fn of(outcome: &CallOutcome, failure: Option<&PastFailure>) -> Self {
        let status = outcome.attempts.last().and_then(|attempt| attempt.http_status);
        match status {
            Some(status @ 200..=299) if outcome.ended.is_ok() => Self::Accepted(status),
            Some(status @ 200..=299) => Self::Unusable(status),
            Some(status @ (408 | 425 | 429 | 502..=504)) => {
                Self::Untold(format!("it answered {status}"))
            }
            Some(status) => Self::Refused(status),
            None => {
                let reason = failure.and_then(|failure| failure.reason.clone());
                let sentence = || failure.map(|failure| failure.message.clone());
                Self::Untold(reason.or_else(sentence).unwrap_or_else(|| "no answer".to_owned()))
            }
        }
    }

    /// This one request, in a sentence.
    pub(super) fn sentence(&self, probe: Probe, outcome: &CallOutcome) -> String {
        match (probe, self, &outcome.ended) {
            (Probe::Good, _, Ok(_)) => {
                format!("Succeeded in {} ms.", outcome.duration.as_millis())
            }
            (Probe::Good, Self::Untold(why), Err(failure)) => {
                format!("FAILED: {} ({why})", failure.message)
            }
            (Probe::Good, _, Err(failure)) => format!("FAILED: {}", failure.message),
            (_, Self::Accepted(status) | Self::Unusable(status), _) => {
                format!("ACCEPTED with {status}: it must not be.")
            }
            (_, Self::Refused(status @ (401 | 403)), _) => {
                format!("Refused with {status}, as it should be.")
            }
            (_, Self::Refused(status), _) => {
                format!("Refused with {status}; 401 would say why.")
            }
            (_, Self::Untold(why), _) => format!("Not told: {why}."),
        }
    }
}

/// Whether a server is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Good {
    /// The call failed, or it could not be told.
    No,
    /// It accepts what it must not.
    NotVerified,
    Yes,
}

/// The end of it all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) good: Good,
    pub(super) text: String,
}

/// What all answers say together. The call itself failed where only it was made and the profile wanted more.
pub(super) fn verdict(signs: Signs, seen: &[(Probe, Seen)]) -> Verdict {
    let of = |probe| seen.iter().find(|(one, _)| *one == probe).map(|(_, seen)| seen);
    let accepted = |probe| matches!(of(probe), Some(Seen::Accepted(_) | Seen::Unusable(_)));
    let say = |good, text: &str| Verdict { good, text: text.to_owned() };
    let called = matches!(of(Probe::Good), Some(Seen::Accepted(_)));
    if !called || seen.len() < Probe::of(signs).len() {
        let hint = match of(Probe::Good) {
            Some(Seen::Refused(401 | 403)) if signs != Signs::Nothing => {
                " It may have another secret, or read the body before it verifies: `sortie verify` checks the header above."
            }
            _ => "",
        };
        return say(Good::No, &format!("The call failed, so nothing more was tried.{hint}"));
    }
    let untold = seen.iter().any(|(_, seen)| matches!(seen, Seen::Untold(_)));
    match (accepted(Probe::WrongSignature), accepted(Probe::StaleTime)) {
        (true, _) => say(
            Good::NotVerified,
            "The server does not verify: it accepted a wrong signature, so anybody can call it.",
        ),
        (false, true) => say(
            Good::NotVerified,
            "The server does not look at the time: it accepted a request that was signed ten minutes ago (a stale t), so \
             whoever records one can send it again.",
        ),
        (false, false) if untold => {
            say(Good::No, "The call works; whether the server verifies could not be told.")
        }
        (false, false) => match signs {
            Signs::Nothing => say(
                Good::Yes,
                "The call works. The profile signs nothing, so there is nothing for a server to verify.",
            ),
            Signs::Body => say(
                Good::Yes,
                "The server verifies: it refused a wrong signature. The profile signs no time, so there is no stale one to \
                 refuse.",
            ),
            Signs::BodyAndTime => say(
                Good::Yes,
                "The server verifies: it refused a wrong signature and a stale time.",
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(signs: Signs, answers: &[u16], good: Good, said: &str) {
        let seen = |status: &u16| match status {
            0 => Seen::Untold("no answer".into()),
            200..=299 => Seen::Accepted(*status),
            _ => Seen::Refused(*status),
        };
        let seen: Vec<_> = Probe::of(signs).into_iter().zip(answers.iter().map(seen)).collect();
        let verdict = verdict(signs, &seen);
        assert_eq!(verdict.good, good, "{verdict:?}");
        assert!(verdict.text.contains(said), "{verdict:?}");
    }

    #[test]
    fn three_answers_tell_servers_apart() {
        let all = Signs::BodyAndTime;
        check(all, &[200, 401, 401], Good::Yes, "a wrong signature and a stale time");
        check(all, &[200, 200, 401], Good::NotVerified, "accepted a wrong signature");
        check(all, &[200, 200, 200], Good::NotVerified, "accepted a wrong signature");
        check(all, &[200, 401, 200], Good::NotVerified, "does not look at the time");
        check(all, &[200, 500, 401], Good::Yes, "The server verifies");
        check(all, &[200, 0, 401], Good::No, "could not be told");
        check(all, &[200, 0, 204], Good::NotVerified, "does not look at the time");
        check(all, &[401], Good::No, "another secret");
        check(all, &[500], Good::No, "The call failed, so nothing more was tried.");
        check(all, &[0], Good::No, "The call failed");
    }

    #[test]
    fn a_profile_that_signs_less_is_asked_for_less() {
        check(Signs::Body, &[200, 401], Good::Yes, "signs no time, so there is no stale one");
        check(Signs::Body, &[200, 200], Good::NotVerified, "accepted a wrong signature");
        check(Signs::Nothing, &[200], Good::Yes, "signs nothing");
        check(Signs::Nothing, &[404], Good::No, "The call failed");
    }
}
