//! Rate limits as values: how many calls, counted for whom, and what a model reads when there are no more.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::model::call::CallContext;
use crate::policy::identity::{Caller, Proof};

/// The most that a rate or a burst may be: a day's wait for each of them still fits a clock of 64 bits.
const MOST: u32 = 100_000;

/// For whom calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// For each agent; calls without one are counted together.
    Agent,
    /// For each person; calls without one are counted together.
    EndUser,
    /// For each key of the API.
    Key,
    /// For each organisation.
    Organisation,
    /// For all together.
    Tool,
}

/// The one for whom a call is counted. Names of one organisation are not those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject<'a> {
    /// An agent.
    Agent(&'a str, Option<&'a str>),
    /// A person, by the operator's own id.
    ExternalUser(&'a str, &'a str),
    /// A key, a certificate or a token's subject: a token may have the name of a key.
    Key(&'a str, Proof, &'a str),
    /// An organisation.
    Organisation(&'a str),
    /// All.
    Tool,
    /// A person; or nobody in particular.
    User(&'a str, Option<&'a str>),
}

impl Per {
    /// For whom this call is counted.
    pub fn subject<'a>(self, caller: &'a Caller, context: &'a CallContext) -> Subject<'a> {
        let organisation = &*caller.organisation;
        match self {
            Self::Agent => Subject::Agent(organisation, context.agent_id.as_deref()),
            Self::EndUser => {
                let user = context.end_user.as_ref();
                let id = user.and_then(|user| user.id.as_deref());
                match user.and_then(|user| user.external_id.as_deref()) {
                    Some(external) if id.is_none() => Subject::ExternalUser(organisation, external),
                    _ => Subject::User(organisation, id),
                }
            }
            Self::Key => Subject::Key(organisation, caller.proof, &caller.name),
            Self::Organisation => Subject::Organisation(organisation),
            Self::Tool => Subject::Tool,
        }
    }
}

/// A unit of time in which calls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "s" | "sec" => Some(Self::Second),
            "min" => Some(Self::Minute),
            "h" => Some(Self::Hour),
            "day" => Some(Self::Day),
            _ => None,
        }
    }

    /// The abbreviation in the file, the word in a sentence, and how long it is.
    fn parts(self) -> (&'static str, &'static str, Duration) {
        let (short, word, seconds) = match self {
            Self::Second => ("s", "a second", 1),
            Self::Minute => ("min", "a minute", 60),
            Self::Hour => ("h", "an hour", 60 * 60),
            Self::Day => ("day", "a day", 24 * 60 * 60),
        };
        (short, word, Duration::from_secs(seconds))
    }
}

/// So many calls in a unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU32,
    unit: Unit,
}

impl Rate {
    /// Reads `60/min`; the units are `s` (or `sec`), `min`, `h` and `day`.
    pub fn parse(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once('/')?;
        let digits = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse::<u32>().ok().filter(|count| digits && *count <= MOST)?;
        Some(Self { count: NonZeroU32::new(count)?, unit: Unit::parse(unit)? })
    }

    /// How many calls.
    pub fn count(self) -> NonZeroU32 {
        self.count
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.unit.parts().0)
    }
}

/// A limit on how often a tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// For whom calls are counted.
    pub per: Per,
    /// How many, in the long run.
    pub rate: Rate,
    burst: NonZeroU32,
    replicas: NonZeroU32,
}

/// Why there is no such limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be from 1 to {MOST}")]
pub struct BurstError;

impl RateLimit {
    /// A limit of this replica, of which there are `replicas`. `burst` is how many calls may come at once; by default as
    /// many as the rate names.
    pub fn new(
        per: Per,
        rate: Rate,
        burst: Option<u32>,
        replicas: NonZeroU32,
    ) -> Result<Self, BurstError> {
        let burst = burst.unwrap_or(rate.count.get());
        let burst = NonZeroU32::new(burst).filter(|burst| burst.get() <= MOST).ok_or(BurstError)?;
        Ok(Self { per, rate, burst, replicas })
    }

    /// The time after which one more call may come, in this replica; never zero.
    pub fn period(&self) -> Duration {
        let (_, _, unit) = self.rate.unit.parts();
        unit.saturating_mul(self.replicas.get()) / self.rate.count.get()
    }

    /// How many calls may come at once, in this replica.
    pub fn burst(&self) -> NonZeroU32 {
        NonZeroU32::new(self.burst.get() / self.replicas.get()).unwrap_or(NonZeroU32::MIN)
    }

    /// How many calls may come at once, in all replicas together.
    pub fn whole_burst(&self) -> NonZeroU32 {
        self.burst
    }

    /// What a model reads when the limit is reached.
    pub fn sentence(&self, wait: Duration) -> String {
        let (_, unit, _) = self.rate.unit.parts();
        let count = self.rate.count.get();
        let calls = if count == 1 { "call" } else { "calls" };
        let wait = whole_seconds(wait);
        format!("The tool's limit of {count} {calls} {unit} is reached; try again in {wait} s.")
    }
}

/// A wait as callers are told it: whole seconds, rounded up, at least one.
pub fn whole_seconds(wait: Duration) -> u64 {
    let begun = u64::from(wait.subsec_nanos() > 0);
    wait.as_secs().saturating_add(begun).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call::EndUser;

    fn limit(rate: &str, burst: Option<u32>, replicas: u32) -> RateLimit {
        let replicas = NonZeroU32::new(replicas).unwrap();
        RateLimit::new(Per::Tool, Rate::parse(rate).unwrap(), burst, replicas).unwrap()
    }

    #[track_caller]
    fn check(rate: &str, burst: Option<u32>, replicas: u32, period_ms: u64, at_once: u32) {
        let limit = limit(rate, burst, replicas);
        assert_eq!(limit.period(), Duration::from_millis(period_ms));
        assert_eq!(limit.burst().get(), at_once);
    }

    #[test]
    fn a_rate_is_a_period_and_a_burst() {
        check("60/min", None, 1, 1000, 60);
        check("60/min", Some(10), 1, 1000, 10);
        check("100/s", None, 1, 10, 100);
        check("100/sec", None, 1, 10, 100);
        check("2/h", None, 1, 1_800_000, 2);
        check("1/day", None, 1, 86_400_000, 1);
    }

    #[test]
    fn replicas_share_it_and_each_has_one_call_at_least() {
        check("60/min", None, 3, 3000, 20);
        check("60/min", Some(10), 4, 4000, 2);
        check("1/min", None, 4, 240_000, 1);
    }

    #[test]
    fn no_limit_outgrows_the_clock() {
        let widest = limit("1/day", Some(MOST), 1);
        let all = widest.period().as_nanos() * u128::from(widest.burst().get());
        assert!(all < u128::from(u64::MAX) / 2);
        assert!(!limit("100000/s", None, 1).period().is_zero());
    }

    #[test]
    fn other_spellings_are_no_rate() {
        for bad in [
            "",
            "60",
            "/min",
            "60/",
            "0/min",
            "-1/min",
            "+1/min",
            "1.5/s",
            "60 /min",
            "60/ min",
            "60/m",
            "60/minute",
            "60/MIN",
            "100001/s",
            "99999999999/s",
            "60/min/s",
        ] {
            assert_eq!(Rate::parse(bad), None, "{bad}");
        }
        for good in ["60/s", "60/min", "60/h", "60/day"] {
            assert_eq!(Rate::parse(good).map(|rate| rate.to_string()).as_deref(), Some(good));
        }
        let rate = Rate::parse("1/s").unwrap();
        for burst in [0, MOST + 1] {
            assert_eq!(
                RateLimit::new(Per::Tool, rate, Some(burst), NonZeroU32::MIN),
                Err(BurstError)
            );
        }
    }

    #[test]
    fn the_sentence_names_the_limit_and_the_wait() {
        assert_eq!(
            limit("60/min", Some(5), 2).sentence(Duration::from_millis(11_001)),
            "The tool's limit of 60 calls a minute is reached; try again in 12 s."
        );
        assert_eq!(
            limit("1/h", None, 1).sentence(Duration::from_millis(1)),
            "The tool's limit of 1 call an hour is reached; try again in 1 s."
        );
    }

    #[test]
    fn waits_are_whole_seconds_rounded_up() {
        for (ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds);
        }
    }

    #[test]
    fn calls_are_counted_for_their_subject() {
        let caller = Caller::anonymous();
        let user = |id: Option<&str>, external: Option<&str>| CallContext {
            end_user: Some(EndUser {
                id: id.map(str::to_owned),
                external_id: external.map(str::to_owned),
            }),
            agent_id: Some("support".into()),
            ..CallContext::default()
        };
        let organisation = &*caller.organisation;
        let (both, external) = (user(Some("7"), Some("7")), user(None, Some("7")));
        let nobody = CallContext::default();
        let subject = |per: Per, context| per.subject(&caller, context);
        assert_eq!(subject(Per::EndUser, &both), Subject::User(organisation, Some("7")));
        assert_eq!(subject(Per::EndUser, &external), Subject::ExternalUser(organisation, "7"));
        assert_eq!(subject(Per::EndUser, &nobody), Subject::User(organisation, None));
        assert_eq!(subject(Per::Agent, &both), Subject::Agent(organisation, Some("support")));
        assert_eq!(subject(Per::Agent, &nobody), Subject::Agent(organisation, None));
        assert_eq!(subject(Per::Key, &both), Subject::Key(organisation, Proof::Nothing, "none"));
        let of = |proof| Caller { proof, ..Caller::anonymous() };
        let (key, token) = (of(Proof::Key), of(Proof::Token));
        assert_ne!(Per::Key.subject(&key, &both), Per::Key.subject(&token, &both));
        assert_eq!(subject(Per::Organisation, &both), Subject::Organisation(organisation));
        assert_eq!(subject(Per::Tool, &both), Subject::Tool);
    }
}
