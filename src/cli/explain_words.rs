//! Facts about a tool in words, for the operator's page and the author's.

use crate::config::leaf::Span;
use crate::config::snapshot::Tool;

/// Where the tool is, without the query.
pub(super) fn url(tool: &Tool) -> String {
    let url = tool.endpoint.to_string();
    url.split_once('?').map_or(url.clone(), |(place, _)| format!("{place}?***"))
}

/// What is tried again.
pub(super) fn retries(tool: &Tool) -> String {
    let retry = tool.profile.view().retry;
    if retry.attempts <= 1 {
        return "nothing is tried again".into();
    }
    let mut on = Vec::new();
    if retry.on_network {
        on.push("a broken connection".to_owned());
    }
    let statuses: Vec<String> = retry.statuses.iter().map(u16::to_string).collect();
    match (statuses.as_slice(), statuses.len()) {
        ([], _) => {}
        ([first, .., last], 6..) => {
            on.push(format!("{} statuses from {first} to {last}", statuses.len()))
        }
        (some, _) => on.push(some.join(", ")),
    }
    let safe = if tool.idempotent || tool.profile.sends_idempotency_key() {
        "a repeat can be told, so it is sent where the tool may have acted too"
    } else {
        "only where the tool cannot have acted"
    };
    format!("again after {}; {safe}", on.join(" and "))
}

/// How often it may be called.
pub(super) fn rate_limits(tool: &Tool) -> Vec<String> {
    let word = |per| format!("{per:?}").to_lowercase();
    let limits = tool.limits.rates.iter();
    limits
        .map(|limit| {
            let (rate, burst, per) = (limit.rate, limit.burst(), word(limit.per));
            format!("{rate} for each {per}, {burst} at once")
        })
        .collect()
}

/// When it is not called for a while.
pub(super) fn breaker(tool: &Tool) -> String {
    match &tool.limits.breaker {
        None => "off: it is called however often it fails".into(),
        Some(breaker) => format!(
            "{} failures in a row, or {} of at least {} calls in {}, pause it for {}",
            breaker.consecutive,
            breaker.failure_ratio,
            breaker.min_calls,
            Span(breaker.window),
            Span(breaker.open_for)
        ),
    }
}
