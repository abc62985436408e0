//! Times as the contract writes them.

use serde::{Serialize, Serializer};

/// The last millisecond of the year 9999: later years have no place in RFC 3339.
const LAST_MS: i64 = 253_402_300_799_999;

/// A time as text: RFC 3339, UTC, three decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeText([u8; 24]);

/// Writes a time, such as `2026-10-30T09:55:02.007Z`. What lies before 1970 or after 9999 moves to that edge.
///
/// A call writes five of them, so the calendar is worked out here rather than by a general one.
pub fn rfc3339(unix_ms: i64) -> TimeText {
    let ms = unix_ms.clamp(0, LAST_MS).unsigned_abs();
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut write = |end: usize, number: u64, digits: usize| {
        let mut rest = number;
        for at in (end - digits..end).rev() {
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    };
    write(4, year, 4);
    write(7, month, 2);
    write(10, day, 2);
    write(13, seconds / 3600, 2);
    write(16, seconds / 60 % 60, 2);
    write(19, seconds % 60, 2);
    write(23, ms, 3);
    TimeText(text)
}

impl TimeText {
    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and signs")
    }
}

impl Serialize for TimeText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
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
        assert_eq!(rfc3339(unix_ms).as_str(), expected);
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
            let expected = format!("{:.3}", Timestamp::from_millisecond(ms).unwrap());
            prop_assert_eq!(rfc3339(ms).as_str().to_owned(), expected);
        }
    }
}
