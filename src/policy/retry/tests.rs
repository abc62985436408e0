//! Tests of the retry decision: the table row by row, then the arithmetic.

use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(3600);

/// When a row of the table may be repeated.
#[derive(Clone, Copy, PartialEq)]
enum Row {
    Always,
    Idempotent,
    Never,
    ReadOnly,
    /// Always with `Retry-After`, else idempotent tools only.
    RetryAfter,
}

const ENDS: [AttemptEnd; 12] = [
    AttemptEnd::Blocked,
    AttemptEnd::BodyBroken,
    AttemptEnd::BodyTimeout,
    AttemptEnd::Broken,
    AttemptEnd::Certificate,
    AttemptEnd::Connect,
    AttemptEnd::Dns,
    AttemptEnd::NoSuchName,
    AttemptEnd::ResponseTimeout,
    AttemptEnd::TlsHandshake,
    AttemptEnd::Unreadable,
    AttemptEnd::Unsent,
];

fn all_ends() -> impl Iterator<Item = AttemptEnd> {
    ENDS.into_iter().chain((0..=1000).map(AttemptEnd::Status))
}

/// The table of safe repeats, and whether `network` covers the row.
fn row(end: AttemptEnd) -> (Row, bool) {
    match end {
        AttemptEnd::Blocked => (Row::Never, false),
        AttemptEnd::NoSuchName => (Row::Never, false),
        AttemptEnd::Dns => (Row::Always, true),
        AttemptEnd::Connect => (Row::Always, true),
        AttemptEnd::TlsHandshake => (Row::Always, true),
        AttemptEnd::Certificate => (Row::Never, false),
        AttemptEnd::Unsent => (Row::Always, true),
        AttemptEnd::Broken => (Row::Idempotent, true),
        AttemptEnd::ResponseTimeout => (Row::Idempotent, false),
        AttemptEnd::BodyBroken => (Row::ReadOnly, true),
        AttemptEnd::BodyTimeout => (Row::ReadOnly, false),
        AttemptEnd::Unreadable => (Row::Never, false),
        AttemptEnd::Status(status) => match status {
            408 | 425 | 429 => (Row::Always, false),
            503 => (Row::RetryAfter, false),
            409 => (Row::Idempotent, false),
            status if status / 100 == 5 => (Row::Idempotent, false),
            _ => (Row::Never, false),
        },
    }
}

/// No pause but what this answer asks for.
fn unpaused(retry_after: Option<Duration>) -> Asked {
    Asked { retry_after, pause: Duration::ZERO }
}

fn policy(attempts: u32, words: &[&str]) -> RetryPolicy {
    let mut policy = RetryPolicy { attempts, ..RetryPolicy::default() };
    for word in words {
        policy.want(word).unwrap();
    }
    policy
}

fn all_traits() -> impl Iterator<Item = ToolTraits> {
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .map(|(idempotent, read_only)| ToolTraits { idempotent, read_only })
}

fn bare() -> RetryPolicy {
    policy(3, &["network", "5xx", "501", "505"])
}

fn webhooks() -> RetryPolicy {
    policy(3, &["network", "5xx", "408", "425", "429"])
}

/// Which statuses a policy wants.
type Wanted = dyn Fn(u16) -> bool;

#[test]
fn every_end_tool_and_policy_follows_the_table() {
    let everything: Vec<u16> = (0..=1000).collect();
    let policies: [(RetryPolicy, &Wanted, bool); 5] = [
        (policy(1, &["network", "5xx", "429"]), &|_| false, false),
        (policy(3, &[]), &|_| false, false),
        (bare(), &|status| status / 100 == 5, true),
        (
            webhooks(),
            &|s| matches!(s, 408 | 425 | 429) || s / 100 == 5 && s != 501 && s != 505,
            true,
        ),
        (
            RetryPolicy {
                attempts: 3,
                on_network: true,
                statuses: everything.into_iter().collect(),
                repeat_key: true,
            },
            &|_| true,
            true,
        ),
    ];
    for end in all_ends() {
        for traits in all_traits() {
            for retry_after in [None, Some(Duration::ZERO), Some(Duration::from_secs(7))] {
                let (row, network) = row(end);
                let is_safe = match row {
                    Row::Always => true,
                    Row::Idempotent => traits.idempotent,
                    Row::Never => false,
                    Row::ReadOnly => traits.read_only,
                    Row::RetryAfter => retry_after.is_some() || traits.idempotent,
                };
                assert_eq!(safe(end, traits, retry_after.is_some()), is_safe, "{end:?} {traits:?}");
                for (policy, wants_status, wants_network) in &policies {
                    let is_wanted = match end {
                        AttemptEnd::Status(status) => wants_status(status),
                        _ => network && *wants_network,
                    };
                    for attempt in 1..=4 {
                        let next =
                            next(policy, traits, end, attempt, unpaused(retry_after), LONG, 0.5);
                        let repeated = is_safe && is_wanted && attempt < policy.attempts;
                        match next {
                            Next::Retry { .. } => {
                                assert!(repeated, "{end:?} {traits:?} {policy:?}")
                            }
                            Next::Stop { retry_after: passed_on } => {
                                assert!(!repeated, "{end:?} {traits:?} {policy:?}");
                                assert_eq!(passed_on, retry_after);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn words_of_a_profile_are_closed() {
    let statuses = policy(3, &["5xx"]).statuses;
    assert_eq!(statuses.len(), 98);
    assert!(!statuses.contains(&501) && !statuses.contains(&505) && statuses.contains(&599));
    assert!(policy(3, &["network"]).on_network);
    for word in ["", "Network", "4xx", "404", "200", "600", "timeout", "-1", "5XX", "1e3"] {
        let error = policy(3, &[]).want(word).unwrap_err();
        assert!(error.to_string().starts_with(&format!("`{word}` is not")), "{error}");
    }
}

#[track_caller]
fn check_retryable(end: AttemptEnd, plain: bool, idempotent: bool) {
    let traits = |idempotent| ToolTraits { idempotent, read_only: false };
    let both = (retryable(end, traits(false)), retryable(end, traits(true)));
    assert_eq!(both, (plain, idempotent), "{end:?}");
}

#[test]
fn retryable_is_not_sent_or_idempotent_and_not_permanent() {
    for end in all_ends() {
        let not_sent = matches!(row(end).0, Row::Always) || end == AttemptEnd::NoSuchName;
        match end {
            AttemptEnd::Blocked | AttemptEnd::Certificate => check_retryable(end, false, false),
            AttemptEnd::Status(408 | 425 | 429) => check_retryable(end, false, true),
            AttemptEnd::Status(300..=499) => check_retryable(end, false, false),
            AttemptEnd::Status(_) => check_retryable(end, false, true),
            _ => check_retryable(end, not_sent, true),
        }
    }
}

#[track_caller]
fn check_backoff(n: u32, jitter: f64, millis: u64) {
    assert_eq!(backoff(n, jitter), Duration::from_millis(millis));
}

#[test]
fn backoff_doubles_up_to_five_seconds_with_equal_jitter() {
    for (n, least, most) in [(0, 250, 500), (1, 500, 1000), (2, 1000, 2000), (3, 2000, 4000)] {
        check_backoff(n, 0.0, least);
        check_backoff(n, 0.5, (least + most) / 2);
        check_backoff(n, 1.0, most);
    }
    for n in [4, 5, 31, 32, 64, u32::MAX] {
        check_backoff(n, 0.0, 2500);
        check_backoff(n, 1.0, 5000);
    }
}

#[test]
fn odd_jitter_stays_in_bounds() {
    check_backoff(0, -1.0, 250);
    check_backoff(0, f64::NAN, 250);
    check_backoff(0, f64::INFINITY, 500);
}

/// Sunday, 6 November 1994, 08:49:37 UTC.
const NOW: i64 = 784_111_777;

#[track_caller]
fn check_retry_after(text: &str, seconds: Option<u64>) {
    assert_eq!(parse_retry_after(text.as_bytes(), NOW), seconds.map(Duration::from_secs), "{text}");
}

#[test]
fn retry_after_takes_digits() {
    check_retry_after("0", Some(0));
    check_retry_after("1", Some(1));
    check_retry_after("007", Some(7));
    check_retry_after(" 120\t", Some(120));
    check_retry_after("86400", Some(86_400));
    check_retry_after("9999999999", Some(9_999_999_999));
}

#[test]
fn retry_after_takes_dates() {
    check_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", Some(0));
    check_retry_after("Sun, 06 Nov 1994 08:49:47 GMT", Some(10));
    check_retry_after("Sun, 06 Nov 1994 08:49:36 GMT", Some(0));
    check_retry_after("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
    check_retry_after("Sunday, 06-Nov-94 08:49:40 GMT", Some(3));
    check_retry_after("Sun Nov  6 08:49:40 1994", Some(3));
}

#[test]
fn retry_after_takes_nothing_else() {
    for text in [
        "",
        " ",
        "-1",
        "+3",
        "1.5",
        "inf",
        "nan",
        "1e300",
        "12345678901234567890",
        "99999999999",
        "1 2",
        "1s",
        "0x10",
        "١",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 31 Feb 2027 08:49:37 GMT",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "tomorrow",
        "\u{0}",
    ] {
        check_retry_after(text, None);
    }
    assert_eq!(parse_retry_after(b"\xff", NOW), None);
    let before_the_epoch = parse_retry_after(b"Thu, 01 Jan 1970 00:00:05 GMT", -9);
    assert_eq!(before_the_epoch, Some(Duration::from_secs(5)));
}

/// What follows a first 429 with this wait asked for, so much time left, and no or full jitter.
#[track_caller]
fn check_wait(asked: Option<u64>, remaining: u64, jitter: f64, expected: Option<u64>) {
    let retry_after = asked.map(Duration::from_millis);
    let remaining = Duration::from_millis(remaining);
    let end = AttemptEnd::Status(429);
    let next =
        next(&webhooks(), ToolTraits::default(), end, 1, unpaused(retry_after), remaining, jitter);
    let expected = expected.map_or(Next::Stop { retry_after }, |millis| Next::Retry {
        after: Duration::from_millis(millis),
    });
    assert_eq!(next, expected);
}

#[test]
fn a_wait_that_is_asked_for_is_the_least_wait() {
    check_wait(None, 10_000, 0.0, Some(250));
    check_wait(None, 10_000, 1.0, Some(500));
    check_wait(Some(0), 10_000, 1.0, Some(500));
    check_wait(Some(2000), 10_000, 0.0, Some(2000));
    check_wait(Some(2000), 10_000, 1.0, Some(2250));
}

#[test]
fn what_does_not_fit_the_deadline_stops_and_is_passed_on() {
    check_wait(None, 350, 0.0, Some(250));
    check_wait(None, 349, 0.0, None);
    check_wait(Some(2000), 2100, 0.0, Some(2000));
    check_wait(Some(2000), 2100, 0.1, None);
    check_wait(Some(u64::MAX), u64::MAX, 1.0, None);
    check_wait(None, 0, 0.0, None);
}

#[test]
fn a_conflict_waits_a_second() {
    let policy = policy(3, &["409"]);
    let traits = ToolTraits { idempotent: true, read_only: false };
    let end = AttemptEnd::Status(409);
    let after = Duration::from_secs(1);
    assert_eq!(next(&policy, traits, end, 1, unpaused(None), LONG, 0.0), Next::Retry { after });
}

#[test]
fn extremes_do_not_overflow() {
    let traits = ToolTraits::default();
    let policy = RetryPolicy { attempts: u32::MAX, ..webhooks() };
    for attempt in [0, 1, 64, u32::MAX - 1, u32::MAX] {
        for remaining in [Duration::ZERO, Duration::MAX] {
            let end = AttemptEnd::Status(429);
            next(&policy, traits, end, attempt, unpaused(Some(Duration::MAX)), remaining, 1.0);
        }
    }
}

fn ends() -> impl Strategy<Value = AttemptEnd> {
    prop_oneof![
        prop::sample::select(&ENDS[..]),
        prop::sample::select(&[408, 409, 425, 429, 500, 501, 502, 503, 504][..])
            .prop_map(AttemptEnd::Status),
        (100..600_u16).prop_map(AttemptEnd::Status),
    ]
}

proptest! {
    #[test]
    fn a_call_never_outlives_its_deadline(
        schedule in prop::collection::vec(
            (ends(), 0..3000_u64, prop::option::of(0..20_u64), 0.0..1.0_f64),
            1..40,
        ),
        attempts in 0..10_u32,
        deadline in 0..60_000_u64,
        idempotent in any::<bool>(),
        read_only in any::<bool>(),
    ) {
        let traits = ToolTraits { idempotent, read_only };
        let policy = RetryPolicy { attempts, ..policy(0, &["network", "5xx", "408", "409", "425", "429"]) };
        let mut remaining = Duration::from_millis(deadline);
        let mut waited = Duration::ZERO;
        for ((end, took, asked, jitter), attempt) in schedule.into_iter().zip(1..) {
            // An attempt is bounded by what remains.
            remaining = remaining.saturating_sub(Duration::from_millis(took));
            let retry_after = asked.map(Duration::from_secs);
            match next(&policy, traits, end, attempt, unpaused(retry_after), remaining, jitter) {
                Next::Stop { retry_after: passed_on } => {
                    prop_assert_eq!(passed_on, retry_after);
                    break;
                }
                Next::Retry { after } => {
                    prop_assert!(attempt < attempts);
                    prop_assert!(safe(end, traits, retry_after.is_some()));
                    prop_assert!(after >= retry_after.unwrap_or_default().max(backoff(attempt - 1, 0.0)));
                    prop_assert!(after + Duration::from_millis(100) <= remaining);
                    remaining -= after;
                    waited += after;
                }
            }
        }
        prop_assert!(waited <= Duration::from_millis(deadline));
    }

    #[test]
    fn any_retry_after_is_read_or_left(text in prop::collection::vec(any::<u8>(), 0..40), now in any::<i64>()) {
        let _ = parse_retry_after(&text, now);
    }

    #[test]
    fn seconds_come_back_as_written(seconds in 0..10_000_000_000_u64) {
        let text = seconds.to_string();
        prop_assert_eq!(parse_retry_after(text.as_bytes(), NOW), Some(Duration::from_secs(seconds)));
    }
}

#[test]
fn a_repeat_waits_for_the_tool_s_pause_and_says_so_where_it_cannot() {
    let paused = |pause, remaining| {
        let asked = Asked { retry_after: None, pause };
        next(&bare(), ToolTraits::default(), AttemptEnd::Connect, 1, asked, remaining, 0.5)
    };
    let pause = Duration::from_secs(7);
    let after = pause + Duration::from_millis(125);
    assert_eq!(paused(pause, LONG), Next::Retry { after });
    assert_eq!(paused(pause, pause), Next::Stop { retry_after: Some(pause) });
    let asked = Asked { retry_after: Some(pause * 2), pause };
    let end = AttemptEnd::Status(429);
    let told = next(&bare(), ToolTraits::default(), end, 1, asked, LONG, 0.5);
    assert_eq!(told, Next::Stop { retry_after: Some(pause * 2) });
}
