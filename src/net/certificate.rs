//! When a certificate ends: the one field of X.509 that operators watch.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// The end of a certificate's validity in Unix seconds; `None` where it cannot be read.
pub fn not_after(der: &[u8]) -> Option<i64> {
    let certificate = expect(SEQUENCE, &mut { der })?;
    let mut fields = expect(SEQUENCE, &mut { certificate })?;
    let (mut tag, _) = next(&mut fields)?;
    if tag == VERSION {
        // Then the serial number follows, which is always there.
        (tag, _) = next(&mut fields)?;
    }
    debug_assert_ne!(tag, VERSION);
    let _algorithm = expect(SEQUENCE, &mut fields)?;
    let _issuer = expect(SEQUENCE, &mut fields)?;
    let mut validity = expect(SEQUENCE, &mut fields)?;
    let _not_before = next(&mut validity)?;
    let (tag, text) = next(&mut validity)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

/// The content of the next element, which must have this tag.
fn expect<'a>(tag: u8, input: &mut &'a [u8]) -> Option<&'a [u8]> {
    next(input).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// Takes one element off the input: its tag and content (X.690, definite lengths only).
fn next<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some((tag, content))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ` (RFC 5280, section 4.1.2.5).
fn time(tag: u8, text: &str) -> Option<i64> {
    let digits =
        text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at(2);
            let year: i16 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at(4);
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    let when = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    Some(TimeZone::UTC.to_timestamp(when).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[track_caller]
    fn check(year: i32, seconds: i64) {
        let mut params = CertificateParams::new(["tool.example".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 3, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(not_after(certificate.der()), Some(seconds));
    }

    #[test]
    fn reads_both_spellings_of_a_time() {
        check(2027, 1_803_859_200);
        check(2061, 2_876_860_800);
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let der = certificate.cert.der();
        for length in 0..der.len().min(200) {
            assert_eq!(not_after(&der[..length]), None, "{length}");
        }
    }
}
