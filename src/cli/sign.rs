//! `sortie sign` and `sortie verify`: for the authors of tool servers, over any of the shipped profiles.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::cli::exit::{FAILED, OK, USAGE, fail, print};
use crate::clock::{Clock, SystemClock};
use crate::config::context::{Source, SourceError};
use crate::config::profile;
use crate::policy::sign::{MessageId, Received, SigningKeys};
use crate::policy::wire::WireProfile;
use crate::source;

/// Bound on a body that is read from stdin.
const BODY_LIMIT: u64 = 16 << 20;

/// Print the header lines that sign the body on stdin.
#[derive(Debug, clap::Args)]
pub struct SignArguments {
    #[command(flatten)]
    key: KeyArguments,
    /// The time to sign, in Unix seconds; now when left out
    #[arg(long, value_name = "SECONDS")]
    t: Option<i64>,
    /// The message id, where the profile signs one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// Check a signature over the body on stdin, as a tool's server should.
#[derive(Debug, clap::Args)]
pub struct VerifyArguments {
    #[command(flatten)]
    key: KeyArguments,
    /// The signature header's value
    #[arg(long, value_name = "VALUE")]
    header: String,
    /// The message id, where the profile signs one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The value of the header that holds the time, where it has one of its own
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<String>,
    /// The time to compare with, in Unix seconds; now when left out
    #[arg(long, value_name = "SECONDS")]
    now: Option<i64>,
    /// How far the signed time may be off
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    tolerance: u64,
}

#[derive(Debug, clap::Args)]
struct KeyArguments {
    /// One of the shipped profiles
    #[arg(long, value_name = "NAME")]
    profile: String,
    /// The file that holds the secret; one trailing newline is not part of it
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
}

/// Prints the header lines.
pub fn sign(arguments: &SignArguments) -> u8 {
    let (profile, keys, body) = match arguments.key.read() {
        Ok(read) => read,
        Err(code) => return code,
    };
    let id = match arguments.id.as_deref().map(MessageId::parse).transpose() {
        Ok(id) => id,
        Err(error) => return usage(&error.to_string()),
    };
    match profile.signature_headers(&keys, arguments.t.unwrap_or_else(now), id, &body) {
        Ok(lines) => {
            let lines: Vec<String> =
                lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
            print(&lines.concat(), OK)
        }
        Err(error) => usage(&format!("{error}; give it with --id")),
    }
}

/// Exits 0 where the signature is good, 1 where it is not.
pub fn verify(arguments: &VerifyArguments) -> u8 {
    let (profile, keys, body) = match arguments.key.read() {
        Ok(read) => read,
        Err(code) => return code,
    };
    let Some(scheme) = profile.signature() else { return usage("the profile signs nothing") };
    let received = Received {
        value: &arguments.header,
        timestamp: arguments.timestamp.as_deref(),
        id: arguments.id.as_deref(),
        body: &body,
    };
    match scheme.verify(&keys, &received, arguments.now.unwrap_or_else(now), arguments.tolerance) {
        Ok(()) => print("valid\n", OK),
        Err(error) => print(&format!("not valid: {error}\n"), FAILED),
    }
}

impl KeyArguments {
    fn read(&self) -> Result<(WireProfile, SigningKeys, Vec<u8>), u8> {
        let mut shipped = profile::builtin();
        let Some(at) = shipped.iter().position(|one| one.name == self.profile) else {
            let known: Vec<&str> = shipped.iter().map(|one| one.name.as_str()).collect();
            let text = format!("no profile `{}`; shipped are {}", self.profile, known.join(", "));
            return Err(usage(&text));
        };
        let profile = shipped.swap_remove(at);
        let Some(scheme) = profile.signature() else {
            return Err(usage(&format!("the profile `{}` signs nothing", self.profile)));
        };
        let secret = read_secret(&self.secret_file)?;
        let keys = scheme.prepare(&[secret]).map_err(|error| fail(&error.to_string()))?;
        let mut body = Vec::new();
        let read = std::io::stdin().take(BODY_LIMIT + 1).read_to_end(&mut body);
        match read {
            Ok(bytes) if bytes as u64 > BODY_LIMIT => {
                Err(fail(&format!("the body is larger than {BODY_LIMIT} bytes")))
            }
            Ok(_) => Ok((profile, keys, body)),
            Err(error) => Err(fail(&format!("stdin cannot be read: {error}"))),
        }
    }
}

/// Reads a secret without its line end; where that is not possible it is said, and the exit code is the error.
pub fn read_secret(path: &Path) -> Result<crate::model::secret::Secret, u8> {
    let secret = source::lookup(&Source::File(path.to_owned()));
    let fault = |error: SourceError| fail(&format!("the secret file `{}` {error}", path.display()));
    Ok(secret.map_err(fault)?.without_line_end())
}

fn now() -> i64 {
    SystemClock.unix_ms().div_euclid(1000)
}

fn usage(message: &str) -> u8 {
    fail(message);
    USAGE
}
