//! Approvals as text: a table of many, or all that is to be known of one.

use jiff::Timestamp;

use crate::cli::approvals::shown::Shown;
use crate::telemetry::line::one_line;

/// A row for each, and how many there are.
pub(super) fn table(approvals: &[Shown], now_ms: i64) -> String {
    let head = ["ID", "TOOL", "AGENT", "AGE", "EXPIRES IN", "MESSAGE"].map(str::to_owned);
    let rows: Vec<[String; 6]> = approvals.iter().map(|one| row(one, now_ms)).collect();
    let mut widths = head.each_ref().map(String::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut page = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        page.push_str(line.trim_end());
        page.push('\n');
    }
    let noun = if rows.len() == 1 { "approval" } else { "approvals" };
    page.push_str(&format!("\n{} {noun}\n", rows.len()));
    page
}

fn row(one: &Shown, now_ms: i64) -> [String; 6] {
    let is_pending = one.status == "pending";
    let expires = if is_pending { until(&one.expires_at, now_ms) } else { one.status.clone() };
    let texts = [
        one.id.as_str(),
        &one.tool,
        one.agent_id.as_deref().unwrap_or("-"),
        &since(&one.created_at, now_ms),
        &expires,
        one.message.as_deref().unwrap_or("-"),
    ];
    texts.map(clean)
}

/// Everything about one, and last the arguments exactly as they would be sent.
pub(super) fn one(one: &Shown, now_ms: i64) -> String {
    let mut page = format!("{}: {}\n", clean(&one.id), clean(&one.status));
    let mut line = |key: &str, text: Option<&str>| {
        if let Some(text) = text {
            page.push_str(&format!("  {key:<10}{}\n", clean(text)));
        }
    };
    line("call", Some(&one.call_id));
    line("tool", Some(&format!("{}, version {}", one.tool, one.tool_version)));
    line("agent", one.agent_id.as_deref());
    line("session", one.session_id.as_deref());
    line("end user", one.end_user.as_deref());
    let whose = if one.kind == "person" { "the person themselves" } else { "an operator" };
    line("decides", Some(whose));
    let rule = one.rule.as_ref().map(|rule| format!(", because of {rule}"));
    line("policy", Some(&format!("{}{}", one.policy, rule.unwrap_or_default())));
    line("message", one.message.as_deref());
    let age = since(&one.created_at, now_ms);
    line("asked", Some(&format!("{} ({age} ago)", one.created_at)));
    if one.status == "pending" {
        let left = until(&one.expires_at, now_ms);
        line("expires", Some(&format!("{} (in {left})", one.expires_at)));
    }
    if let Some(by) = &one.decided_by {
        let name = by.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let at = one.decided_at.as_deref().unwrap_or_default();
        line("decided", Some(&format!("{at} by {}{name}", by.id)));
    }
    line("reason", one.reason.as_deref());
    line("digest", Some(&one.arguments_digest));
    let arguments = one.arguments.as_ref().map_or("no longer kept", |text| text.get());
    line("arguments", Some(&format!(" {arguments}")));
    page
}

/// How long ago that was.
fn since(time: &str, now_ms: i64) -> String {
    time.parse::<Timestamp>()
        .map_or_else(|_| "-".to_owned(), |time| span(now_ms.saturating_sub(time.as_millisecond())))
}

/// How long it is until then.
fn until(time: &str, now_ms: i64) -> String {
    time.parse::<Timestamp>()
        .map_or_else(|_| "-".to_owned(), |time| span(time.as_millisecond().saturating_sub(now_ms)))
}

/// A time span in its two largest units at most.
fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

fn clean(text: &str) -> String {
    String::from_utf8_lossy(&one_line(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_793_354_102_000; // 2026-10-30T09:55:02Z

    fn shown() -> Shown {
        let text = r#"{"id":"ap_0123456789abcdef","call_id":"call_8f2c","kind":"operator","status":"pending",
            "tool":"refund","tool_version":1,"arguments":{"amount":1e3,"note":"a\nb"},
            "arguments_digest":"sha256:00","policy":"big-refunds","rule":"/amount greater_than 500",
            "message":"Refunds over 500 need a person.","created_at":"2026-10-30T09:52:00.000Z",
            "expires_at":"2026-10-30T11:00:02.000Z","decided_at":null,"decided_by":null,"reason":null,
            "agent_id":"support"}"#;
        serde_json::from_str(text).expect("an approval")
    }

    #[test]
    fn a_row_says_what_waits_and_how_long_it_may() {
        let page = table(&[shown()], NOW);
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(
            lines,
            [
                "ID                   TOOL    AGENT    AGE  EXPIRES IN  MESSAGE",
                "ap_0123456789abcdef  refund  support  3m   1h 5m       Refunds over 500 need a person.",
                "",
                "1 approval",
            ]
        );
        assert!(table(&[], NOW).ends_with("\n0 approvals\n"));
        let decided = Shown { status: "expired".into(), tool: "\u{1b}[31m".into(), ..shown() };
        let page = table(&[decided], NOW);
        assert!(page.contains("\\u001b[31m  support  3m   expired"), "{page}");
    }

    #[test]
    fn one_shows_the_arguments_as_they_would_be_sent() {
        let page = one(&shown(), NOW);
        assert!(
            page.ends_with(
                "  digest    sha256:00\n  arguments  {\"amount\":1e3,\"note\":\"a\\nb\"}\n"
            ),
            "{page}"
        );
        assert!(page.contains("expires   2026-10-30T11:00:02.000Z (in 1h 5m)"), "{page}");
        assert!(
            page.contains("policy    big-refunds, because of /amount greater_than 500"),
            "{page}"
        );
    }

    #[test]
    fn spans_have_two_units_at_most() {
        #[track_caller]
        fn check(seconds: i64, expected: &str) {
            assert_eq!(span(seconds * 1000), expected);
        }
        check(-5, "0s");
        check(59, "59s");
        check(61, "1m");
        check(3600, "1h 0m");
        check(90_061, "1d 1h");
    }
}
