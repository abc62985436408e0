//! Numbers whose text says more than the double that they are read as.

/// Digits that a double always holds.
const EXACT_DIGITS: usize = 15;

/// A number that was rounded when it was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounded {
    /// What it was read as.
    pub double: f64,
    /// Whether the text says a whole number.
    pub is_whole: bool,
}

impl Rounded {
    /// Looks at one number of a JSON text; `None` where nothing was lost, or where it is no number.
    pub fn read(text: &str) -> Option<Self> {
        if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
            return None;
        }
        let double: f64 = text.parse().ok()?;
        let said = Decimal::read(text);
        // The shortest text of a double stands for it as well as its own, longer digits would.
        let is_exact = said.digits.len() <= EXACT_DIGITS && (double.is_normal() || said.is_zero());
        if is_exact || said == Decimal::read(&format!("{double:e}")) {
            return None;
        }
        Some(Self { double, is_whole: said.exponent >= 0 })
    }
}

/// A number without its sign: digits that neither begin nor end with 0, times a power of ten.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn read(text: &str) -> Self {
        let unsigned = text.trim_start_matches('-');
        let (mantissa, power) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, fraction].concat();
        let without_tail = digits.trim_end_matches('0');
        let shift = i64::try_from(digits.len() - without_tail.len()).unwrap_or(i64::MAX)
            - i64::try_from(fraction.len()).unwrap_or(i64::MAX);
        // A power beyond any integer is beyond any double.
        let beyond = if power.starts_with('-') { i64::MIN } else { i64::MAX };
        let power = power.parse().unwrap_or(beyond);
        let digits = without_tail.trim_start_matches('0').to_owned();
        let exponent = if digits.is_empty() { 0 } else { shift.saturating_add(power) };
        Self { digits, exponent }
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(f64, bool)>) {
        let expected = expected.map(|(double, is_whole)| Rounded { double, is_whole });
        assert_eq!(Rounded::read(text), expected, "{text}");
    }

    #[test]
    fn what_a_double_or_an_integer_holds_is_not_rounded() {
        for text in [
            "0",
            "-0",
            "0.0",
            "0e9",
            "1e2",
            "1E+2",
            "100.000000000000000000000",
            "0.1",
            "0.30000000000000004",
            "1.7976931348623157e308",
            "2.2250738585072014e-308",
            "5e-324",
            "12345678901234567890",
            "18446744073709551615",
            "-9223372036854775808",
            "1000000000000000000000",
            "123456789012345.0",
            "true",
            "e",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn what_a_double_cannot_hold_is_rounded() {
        check("100.00000000000000001", Some((100.0, false)));
        check("-100.00000000000000001", Some((-100.0, false)));
        check("99999999999999999999", Some((1e20, true)));
        check("9007199254740993.0", Some((9_007_199_254_740_992.0, true)));
        check("9007199254740993.5", Some((9_007_199_254_740_994.0, false)));
        check("0.10000000000000001", Some((0.1, false)));
        check("1e-400", Some((0.0, false)));
        check("1e-99999999999999999999", Some((0.0, false)));
        check("1.23456e-320", Some((1.23456e-320, false)));
        check("123456789012345678901e3", Some((1.234_567_890_123_456_8e23, true)));
    }
}
