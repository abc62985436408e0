//! What can be wrong with the egress settings, or only look wrong, and what to write instead.

use ipnet::IpNet;

use crate::policy::names::{HostPattern, NameError};
use crate::policy::ports::PortError;

/// One thing that is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RuleError {
    /// Where, below `egress`: `exceptions[0].cidrs[1]`.
    pub field: String,
    /// What.
    pub problem: RuleProblem,
}

/// What is wrong with a setting, or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    /// Not an IP address.
    #[error("`{text}` is not an IP address")]
    Address {
        /// The text.
        text: String,
    },
    /// A port that browsers refuse.
    #[error(
        "port {port} belongs to another protocol; name it in an exception's `ports` if a tool needs it"
    )]
    BadPort {
        /// The port.
        port: u16,
    },
    /// Not a calendar date.
    #[error("`{text}` is not a date; write it as `2027-03-01`")]
    Date {
        /// The text.
        text: String,
    },
    /// An address among names.
    #[error("is an address, which names lead to as well; write `{range}` into `deny_cidrs`")]
    DeniedAddress {
        /// The address as a range.
        range: IpNet,
    },
    /// Nothing where something is needed.
    #[error("must name at least one {what}")]
    Empty {
        /// Of what.
        what: &'static str,
    },
    /// An exception that ends within 30 days.
    #[error("ends after {text}, in {days} days")]
    EndsSoon {
        /// The last day.
        text: String,
        /// How many days are left.
        days: i64,
    },
    /// An exception that has ended.
    #[error("ended after {text}: nothing is opened any more")]
    Ended {
        /// The last day.
        text: String,
    },
    /// Every address.
    #[error("`{text}` is every address; only `deny_cidrs` may say that")]
    Everything {
        /// The text.
        text: String,
    },
    /// A fake-IP range that is none.
    #[error(
        "`{text}` is outside of 198.18.0.0/15 and fc00::/7, and only those may stand for names"
    )]
    FakeIp {
        /// The text.
        text: String,
    },
    /// Bits behind the prefix.
    #[error("`{text}` has bits set behind its prefix; write `{better}`")]
    HostBits {
        /// The text.
        text: String,
        /// The range without them.
        better: IpNet,
    },
    /// A host that cannot be read.
    #[error(transparent)]
    Host(#[from] NameError),
    /// `localhost` in an exception.
    #[error("`{host}` is never opened; write the address: `127.0.0.1`")]
    Localhost {
        /// The host.
        host: HostPattern,
    },
    /// Loopback without ports.
    #[error("must name ports, because `cidrs` has a loopback range")]
    LoopbackPorts,
    /// IPv4-mapped addresses.
    #[error("`{text}` covers IPv4-mapped addresses, which are never called; write the IPv4 range")]
    Mapped {
        /// The text.
        text: String,
    },
    /// A NAT64 prefix of another length.
    #[error(
        "`{text}` is not a NAT64 prefix: an IPv6 range of 32, 40, 48, 56, 64 or 96 bits, of which 64 to 71 are zero"
    )]
    Nat64 {
        /// The text.
        text: String,
    },
    /// A NAT64 prefix over addresses that mean something else.
    #[error("`{text}` has addresses that carry an IPv4 address in another way, or never")]
    Nat64Disguise {
        /// The text.
        text: String,
    },
    /// An exception that nobody answers for.
    #[error("should name who answers for this exception")]
    NoOwner,
    /// An exception that nobody explains.
    #[error("should say what this exception is for")]
    NoReason,
    /// A range that no exception opens.
    #[error("`{text}` is never opened, whatever an exception says")]
    OpensNothing {
        /// The text.
        text: String,
    },
    /// Not a port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Not a range.
    #[error(
        "`{text}` is not a range of addresses; write one such as `10.20.0.0/16` or `10.20.1.5/32`"
    )]
    Range {
        /// The text.
        text: String,
    },
    /// Not a glob of tool names.
    #[error("`{text}` is not a glob of tool names: a-z, 0-9, `_`, `.` and `*`")]
    ToolGlob {
        /// The text.
        text: String,
    },
    /// A glob over a whole top-level domain.
    #[error(
        "`{host}` covers a top-level domain that may be open to anybody; name a suffix of your own"
    )]
    TooWide {
        /// The host.
        host: HostPattern,
    },
}
