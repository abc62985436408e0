//! Single values of the file that are more than text: durations, sizes, days, moments.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::policy::quota::Rate;

/// Units of a duration, in milliseconds.
const DURATION_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
/// Units of a size, in bytes.
const SIZE_UNITS: &[(&str, u64)] =
    &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// A duration: `500ms`, `10s`, `5m`, `24h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A size in bytes: `32768`, `256KiB`, `1MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub usize);

/// Text that is taken as it stands: nothing is ever put into it, so a `${` is a misunderstanding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim(pub String);

/// A port or a range of ports: `443`, `"1024-65535"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub String);

/// A day, as its first second in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    /// The day.
    pub date: Date,
    /// Unix seconds at its end: the first second of the next day.
    pub ends: i64,
}

/// A moment, in Unix seconds: `2026-12-01T00:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub i64);

/// A rate: `60/min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateText(pub Rate);

/// Reads `<digits><unit>`.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

impl Span {
    /// Reads a duration.
    pub fn parse(text: &str) -> Option<Self> {
        quantity(text, DURATION_UNITS).map(|millis| Self(Duration::from_millis(millis)))
    }
}

impl fmt::Display for Span {
    /// The shortest spelling that [`Span::parse`] takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let fits = |(_, factor): &&(&str, u64)| millis.is_multiple_of(u128::from(*factor));
        let largest = DURATION_UNITS.iter().rev().filter(|_| millis > 0).find(fits);
        let (unit, factor) = largest.unwrap_or(&("s", 1000));
        write!(f, "{}{unit}", millis / u128::from(*factor))
    }
}

/// One value that is read from text or from a whole number.
struct Leaf<T> {
    /// Which kind of value is taken.
    kind: &'static str,
    /// Which of them are right.
    expected: &'static str,
    from_text: fn(&str) -> Option<T>,
    from_number: fn(u64) -> Option<T>,
}

impl<T> Visitor<'_> for Leaf<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.from_text)(text)
            .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self.expected))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.from_number)(number)
            .ok_or_else(|| E::invalid_type(Unexpected::Unsigned(number), &self))
    }
}

macro_rules! leaf {
    ($type:ident, $expected:literal, $text:expr, $number:expr, $schema:tt) => {
        leaf!($type, $expected, $expected, $text, $number, $schema);
    };
    ($type:ident, $kind:literal, $expected:literal, $text:expr, $number:expr, $schema:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Leaf {
                    kind: $kind,
                    expected: $expected,
                    from_text: $text,
                    from_number: $number,
                })
            }
        }

        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

leaf!(
    Span,
    "a duration such as `500ms`, `10s`, `5m`, `24h` or `7d`",
    Span::parse,
    |_| None,
    {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
);

leaf!(
    Size,
    "a size in bytes such as `65536`, `256KiB` or `1MiB`",
    |text| quantity(text, SIZE_UNITS).and_then(|bytes| usize::try_from(bytes).ok()).map(Size),
    |bytes| usize::try_from(bytes).ok().map(Size),
    {"anyOf": [{"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB)$"}, {"type": "integer", "minimum": 0}]}
);

leaf!(
    Verbatim,
    "text",
    "text without `${`: nothing is put into it, name a file or a variable of the environment instead",
    |text| (!text.contains("${")).then(|| Verbatim(text.to_owned())),
    |_| None,
    {"type": "string", "not": {"type": "string", "pattern": "\\$\\{"}}
);

leaf!(
    Ports,
    "a port or a range of ports such as `\"443\"` or `\"1024-65535\"`",
    |text| Some(Ports(text.to_owned())),
    |port| Some(Ports(port.to_string())),
    {"anyOf": [{"type": "string", "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$"}, {"type": "integer", "minimum": 1, "maximum": 65535}]}
);

leaf!(
    Day,
    "a day such as `2027-03-01`",
    day,
    |_| None,
    {"type": "string", "format": "date"}
);

leaf!(
    Moment,
    "a moment with its zone such as `2026-12-01T00:00:00Z`",
    |text| text.parse::<Timestamp>().ok().map(|moment| Moment(moment.as_second())),
    |_| None,
    {"type": "string", "format": "date-time"}
);

leaf!(
    RateText,
    "a rate such as `60/min`; the units are s, min, h and day, and 100000 is the most",
    |text| Rate::parse(text).map(RateText),
    |_| None,
    {"type": "string", "pattern": "^[0-9]{1,6}/(s|sec|min|h|day)$"}
);

fn day(text: &str) -> Option<Day> {
    let date = (text.len() == 10).then(|| text.parse::<Date>().ok())??;
    let ends = TimeZone::UTC.to_timestamp(date.tomorrow().ok()?.into()).ok()?;
    Some(Day { date, ends: ends.as_second() })
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer, U64Deserializer};

    use super::*;

    fn text<T: de::DeserializeOwned>(text: &str) -> Option<T> {
        let deserializer: StrDeserializer<'_, Error> = text.into_deserializer();
        T::deserialize(deserializer).ok()
    }

    fn number<T: de::DeserializeOwned>(number: u64) -> Option<T> {
        let deserializer: U64Deserializer<Error> = number.into_deserializer();
        T::deserialize(deserializer).ok()
    }

    #[track_caller]
    fn check_span(written: &str, millis: Option<u64>) {
        assert_eq!(
            text(written),
            millis.map(|millis| Span(Duration::from_millis(millis))),
            "{written}"
        );
    }

    #[test]
    fn durations_are_a_number_and_a_unit() {
        check_span("500ms", Some(500));
        check_span("10s", Some(10_000));
        check_span("5m", Some(300_000));
        check_span("24h", Some(86_400_000));
        check_span("7d", Some(604_800_000));
        check_span("0s", Some(0));
        for bad in ["", "s", "10", "10 s", "1.5s", "-1s", "1m30s", "10S", "99999999999999999999d"] {
            check_span(bad, None);
        }
        assert_eq!(number::<Span>(10), None);
    }

    #[test]
    fn a_duration_is_printed_as_it_can_be_written() {
        for written in ["500ms", "10s", "5m", "24h", "7d", "0s", "90s"] {
            let printed = Span::parse(written).expect("valid").to_string();
            assert_eq!(Span::parse(&printed), Span::parse(written), "{written}");
        }
        assert_eq!(Span(Duration::from_secs(30)).to_string(), "30s");
        assert_eq!(Span(Duration::from_secs(300)).to_string(), "5m");
    }

    #[test]
    fn sizes_are_binary_units_or_plain_bytes() {
        assert_eq!(text("256KiB"), Some(Size(262_144)));
        assert_eq!(text("1MiB"), Some(Size(1_048_576)));
        assert_eq!(number(32_768), Some(Size(32_768)));
        for bad in ["256", "256KB", "1.5MiB", "KiB", "99999999999999GiB"] {
            assert_eq!(text::<Size>(bad), None, "{bad}");
        }
    }

    #[test]
    fn days_end_at_the_next_midnight_utc() {
        assert_eq!(text::<Day>("2027-03-01").map(|day| day.ends), Some(1_803_945_600));
        for bad in ["2027-02-29", "2027-3-1", "01.03.2027", "2027-03-01T00:00:00Z", ""] {
            assert_eq!(text::<Day>(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_need_a_zone() {
        assert_eq!(text("1970-01-02T00:00:00Z"), Some(Moment(86_400)));
        assert_eq!(text("1970-01-02T02:00:00+02:00"), Some(Moment(86_400)));
        for bad in ["1970-01-02T00:00:00", "1970-01-02"] {
            assert_eq!(text::<Moment>(bad), None, "{bad}");
        }
    }

    #[test]
    fn rates_are_a_number_and_a_unit_of_time() {
        assert_eq!(
            text("60/min").map(|RateText(rate)| rate.to_string()).as_deref(),
            Some("60/min")
        );
        for bad in ["60", "60/minute", "0/s", "100001/s"] {
            assert_eq!(text::<RateText>(bad), None, "{bad}");
        }
        assert_eq!(number::<RateText>(60), None);
    }

    #[test]
    fn nothing_is_interpolated() {
        assert_eq!(text("https://x"), Some(Verbatim("https://x".into())));
        assert_eq!(text::<Verbatim>("https://${HOST}"), None);
    }
}
