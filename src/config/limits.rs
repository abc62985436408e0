//! Compiles `defaults`, `limits` and what a tool says about its own.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::context::Context;
use crate::config::given::{Given, List, OneOf};
use crate::config::leaf::{RateText, Span};
use crate::config::raw::RawDefaults;
use crate::config::raw_limits::{RawBreaker, RawLimits, RawOff, RawRateLimit};
use crate::config::raw_tool::{RawEffect, RawTool};
use crate::config::snapshot::{Rounds, ToolLimits, Waiting};
use crate::config::storage::Capture;
use crate::config::yaml::NodeId;
use crate::model::outcome::Effect;
use crate::policy::breaker::Settings;
use crate::policy::quota::RateLimit;

/// Rate limits of one tool: each call asks all of them.
const MOST_RATE_LIMITS: usize = 10;

/// Contract, section 8.
const BREAKER: Settings = Settings {
    consecutive: 5,
    failure_ratio: 0.5,
    min_calls: 10,
    window: Duration::from_secs(60),
    open_for: Duration::from_secs(30),
    max_open_for: Duration::from_secs(600),
};

const SPANS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
/// How long a call may wait: at most a day.
const WAITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
const LONGEST_OPEN: Duration = Duration::from_secs(24 * 60 * 60);

/// `defaults`, compiled.
#[derive(Debug)]
pub struct Defaults {
    /// The effect for a tool that names none, where the file says one.
    pub policy: Option<Effect>,
    /// `storage.capture`, for a tool that says nothing of it.
    pub capture: Capture,
    limits: ToolLimits,
    replicas: NonZeroU32,
}

/// Compiles `defaults`; `capture` is `storage.capture`.
pub fn defaults(context: &Context<'_>, given: &Given<RawDefaults>, capture: Capture) -> Defaults {
    let none = RawDefaults::default();
    let raw = given.get().unwrap_or(&none);
    let replicas = number(context, &raw.rate_limit_replicas, 1, 1..=1000);
    let replicas = NonZeroU32::new(replicas).unwrap_or(NonZeroU32::MIN);
    let limits = ToolLimits {
        concurrency: concurrency(context, &raw.concurrency, 256),
        rates: rates(context, &raw.rate_limits, replicas).unwrap_or_default(),
        breaker: breaker(context, &raw.breaker, Some(BREAKER)),
    };
    let policy = raw.policy.get().copied().map(RawEffect::effect);
    Defaults { policy, capture, limits, replicas }
}

/// Compiles what a tool says itself.
pub fn of_tool(context: &Context<'_>, raw: &RawTool, defaults: &Defaults) -> ToolLimits {
    let Defaults { limits, replicas, .. } = defaults;
    ToolLimits {
        concurrency: concurrency(context, &raw.concurrency, limits.concurrency),
        rates: rates(context, &raw.rate_limits, *replicas).unwrap_or_else(|| limits.rates.clone()),
        breaker: breaker(context, &raw.breaker, limits.breaker),
    }
}

/// Compiles `limits.max_calls_in_flight`.
pub fn max_calls_in_flight(context: &Context<'_>, given: &Given<RawLimits>) -> usize {
    let none = Given::default();
    let given = given.get().map_or(&none, |raw| &raw.max_calls_in_flight);
    size(number(context, given, 1024, 1..=1_000_000))
}

/// Compiles what `limits` says of rounds.
pub fn rounds(context: &Context<'_>, given: &Given<RawLimits>) -> Rounds {
    let none = RawLimits::default();
    let raw = given.get().unwrap_or(&none);
    Rounds {
        calls_per_round: number(context, &raw.calls_per_round, 5, 1..=100),
        max_rounds: number(context, &raw.max_rounds, 3, 1..=100),
    }
}

/// Compiles what `limits` says of calls that wait.
pub fn waiting(context: &Context<'_>, given: &Given<RawLimits>) -> Waiting {
    let none = RawLimits::default();
    let raw = given.get().unwrap_or(&none);
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    Waiting {
        confirm_for: context.duration(&raw.confirm_for, minutes(10), WAITS),
        dispatch_within: context.duration(&raw.dispatch_within, minutes(5), WAITS),
    }
}

fn concurrency(context: &Context<'_>, given: &Given<u32>, default: usize) -> usize {
    given.node().map_or(default, |_| size(number(context, given, 1, 1..=100_000)))
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number(
    context: &Context<'_>,
    given: &Given<u32>,
    default: u32,
    bounds: RangeInclusive<u32>,
) -> u32 {
    context.number(given.found().map(|(number, node)| (*number, node)), default, bounds)
}

/// The limits in the order of the file; `None` where there is no list.
fn rates(
    context: &Context<'_>,
    given: &List<RawRateLimit>,
    replicas: NonZeroU32,
) -> Option<Vec<RateLimit>> {
    let node = given.node()?;
    let list = given.get().map(Vec::as_slice).unwrap_or_default();
    if list.len() > MOST_RATE_LIMITS {
        let message = format!("must be {MOST_RATE_LIMITS} at most, not {}", list.len());
        context.report.error(node, message);
    }
    let rate = |(raw, node)| rate(context, raw, node, replicas);
    Some(list.iter().filter_map(Given::found).filter_map(rate).collect())
}

fn rate(
    context: &Context<'_>,
    raw: &RawRateLimit,
    node: NodeId,
    replicas: NonZeroU32,
) -> Option<RateLimit> {
    let hint = "write tool, organisation, key, agent or end_user";
    let per = context.required(node, "per", &raw.per, hint);
    let rate = context.required(node, "rate", &raw.rate, "write a rate such as 60/min");
    let (Some((per, _)), Some((RateText(rate), _))) = (per, rate) else { return None };
    let burst = raw.burst.get().copied();
    RateLimit::new(per.per(), *rate, burst, replicas)
        .map_err(|error| {
            context.report.error(raw.burst.node().unwrap_or(node), error.to_string());
        })
        .ok()
}

/// Keys that are left out are those of `default`, or the shipped ones where there `off` stands.
fn breaker(
    context: &Context<'_>,
    given: &Given<OneOf<RawOff, RawBreaker>>,
    default: Option<Settings>,
) -> Option<Settings> {
    let raw = match given.get() {
        None => return default,
        Some(OneOf::Short(RawOff::Off)) => return None,
        Some(OneOf::Long(raw)) => raw,
    };
    let default = default.unwrap_or(BREAKER);
    let ratio = raw.failure_ratio.found().map(|(ratio, node)| (*ratio, node));
    if let Some((_, node)) = ratio.filter(|(ratio, _)| !(*ratio > 0.0 && *ratio <= 1.0)) {
        context.report.error(node, "must be more than 0, and 1 at most");
    }
    let open_for = context.duration(&raw.open_for, default.open_for, SPANS);
    let longest = open_for.max(default.max_open_for);
    let max_open_for = raw.max_open_for.found().map_or(longest, |(Span(longest), node)| {
        if !(open_for..=LONGEST_OPEN).contains(longest) {
            let (from, to) = (Span(open_for), Span(LONGEST_OPEN));
            let message =
                format!("must be from {from} (`open_for`) to {to}, not {}", Span(*longest));
            context.report.error(node, message);
        }
        *longest
    });
    Some(Settings {
        consecutive: number(context, &raw.consecutive, default.consecutive, 1..=1000),
        failure_ratio: ratio.map_or(default.failure_ratio, |(ratio, _)| ratio),
        min_calls: number(context, &raw.min_calls, default.min_calls, 1..=100_000),
        window: context.duration(&raw.window, default.window, SPANS),
        open_for,
        max_open_for,
    })
}
