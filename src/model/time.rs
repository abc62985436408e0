//! Times as the contract writes them.

/// The last millisecond of the year 9999: later years have no place in RFC 3339.
const LAST_MS: i64 = 253_402_300_799_999;

/// RFC 3339, UTC, three decimals: `2026-10-30T09:55:02.007Z`. What lies before 1970 or after 9999 moves to that edge.
///
/// A call writes five of them, so the calendar is worked out here rather than by a general one.
pub fn rfc3339(unix_ms: i64) -> String {
    let ms = unix_ms.clamp(0, LAST_MS).unsigned_abs();
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = String::with_capacity(24);
    for (number, width, after) in [
        (year, 4, '-'),
        (month, 2, '-'),
        (day, 2, 'T'),
        (seconds / 3600, 2, ':'),
        (seconds / 60 % 60, 2, ':'),
        (seconds % 60, 2, '.'),
        (ms, 3, 'Z'),
    ] {
        for place in (0..width).rev() {
            let digit = u8::try_from(number / 10_u64.pow(place) % 10).unwrap_or_default();
            text.push(char::from(b'0' + digit));
        }
        text.push(after);
    }
    text
}

/// The date of a day counted from 1970-01-01. Years run from March here, so that the leap day is the last of them.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // From 0000-03-01.
    let (era, day_of_era) = (days / 146_097, days % 146_097); // Eras of 400 years.
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(unix_ms: i64, expected: &str) {
        assert_eq!(rfc3339(unix_ms), expected);
    }

    #[test]
    fn times_have_three_decimals() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_399_999, "2000-02-28T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(1_793_354_102_007, "2026-10-30T09:55:02.007Z");
    }

    #[test]
    fn what_no_year_can_hold_moves_to_the_edge() {
        check(-1, "1970-01-01T00:00:00.000Z");
        check(i64::MAX, "9999-12-31T23:59:59.999Z");
    }

    proptest! {
        #[test]
        fn every_time_is_written_as_a_calendar_library_writes_it(ms in 0..=LAST_MS / 1000 * 1000 - 86_400_000) {
            let time = Timestamp::from_millisecond(ms).unwrap();
            prop_assert_eq!(rfc3339(ms), format!("{time:.3}"));
        }
    }
}
