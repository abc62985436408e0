//! Runs the real binary to its end.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

/// What a finished command left.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code; a signal has none.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary under test.
pub(crate) fn sortie() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sortie"));
    // Where this machine has its spans sent is not the tests' business.
    sortie::config::variables::VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command
}

/// Runs `sortie` with these arguments and this input.
pub(crate) fn run<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    input: impl AsRef<[u8]>,
) -> Finished {
    let mut command = sortie();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input closes the pipe, which is no fault.
    let _ = stdin.write_all(input.as_ref());
    drop(stdin);
    let output = child.wait_with_output().expect("the binary ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8 output");
    Finished {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
