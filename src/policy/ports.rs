//! Ports and port ranges.

use std::fmt;

/// Ports that browsers refuse to speak HTTP to, in order (WHATWG Fetch, "bad port"): a request could be taken for
/// another protocol there.
const BAD_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 10080,
];

/// Whether browsers refuse to speak HTTP to a port.
pub fn is_bad(port: u16) -> bool {
    BAD_PORTS.binary_search(&port).is_ok()
}

/// One port or a range of them, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Reads `443` or `1024-65535`.
    pub fn parse(text: &str) -> Result<Self, PortError> {
        let error = || PortError { text: text.to_owned() };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = read_port(first).zip(read_port(last)).ok_or_else(error)?;
        if first == 0 || first > last { Err(error()) } else { Ok(Self { first, last }) }
    }

    /// The port, where it is only one.
    pub fn single(self) -> Option<u16> {
        (self.first == self.last).then_some(self.first)
    }

    /// Whether a port is in it.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.single() {
            Some(port) => write!(f, "{port}"),
            None => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// A text that is no port and no range of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a port: write one from 1 to 65535, or a range such as `1024-65535`")]
pub struct PortError {
    text: String,
}

/// Reads a port in its one spelling: digits only, no leading zero.
pub fn read_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let canonical = text == "0" || !text.starts_with('0');
    if digits && canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(u16, u16)>) {
        let read = PortRange::parse(text).ok().map(|range| (range.first, range.last));
        assert_eq!(read, expected, "{text:?}");
    }

    #[test]
    fn ports_and_ranges_have_one_spelling() {
        check("443", Some((443, 443)));
        check("1024-65535", Some((1024, 65535)));
        check("8000-8000", Some((8000, 8000)));
        for text in [
            "",
            "0",
            "0-10",
            "65536",
            "1024-",
            "-1",
            "+443",
            "0443",
            " 443",
            "9-8",
            "1-2-3",
            "https",
            "４４３",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn both_ends_of_a_range_are_in_it() {
        let range = PortRange::parse("1024-2048").unwrap();
        let inside: Vec<u16> =
            [1023, 1024, 2048, 2049].into_iter().filter(|port| range.contains(*port)).collect();
        assert_eq!(inside, [1024, 2048]);
    }

    #[test]
    fn bad_ports_are_in_order() {
        assert!(BAD_PORTS.is_sorted());
        assert!(is_bad(6000) && is_bad(10080) && is_bad(25));
        assert!(!is_bad(443) && !is_bad(8443) && !is_bad(80));
    }

    #[test]
    fn errors_say_what_to_write() {
        let error = PortRange::parse("http").unwrap_err().to_string();
        assert_eq!(
            error,
            "`http` is not a port: write one from 1 to 65535, or a range such as `1024-65535`"
        );
    }
}
