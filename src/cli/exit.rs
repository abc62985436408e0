//! Exit codes, and what a command prints: on stdout what was asked for, on stderr why it is not there.

use std::io::{self, ErrorKind, Write};

use crate::telemetry::line::printable;

/// It worked.
pub const OK: u8 = 0;
/// It did not: invalid, refused, failed.
pub const FAILED: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// It worked, and a tool's server accepts what it must not.
pub const NOT_VERIFIED: u8 = 3;

/// Prints a text, and gives the exit code: this one, or `FAILED` where it cannot be printed. What could dress a terminal up
/// is escaped, whoever said it.
pub fn print(text: &str, code: u8) -> u8 {
    print_to(&mut io::stdout(), text, code)
}

fn print_to(out: &mut impl Write, text: &str, code: u8) -> u8 {
    match out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => code,
        // A reader that closed the pipe has seen enough; the code still tells.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
        Err(error) => fail(&format!("stdout cannot be written: {error}")),
    }
}

/// Says on stderr what went wrong, and gives the exit code for it.
pub fn fail(message: &str) -> u8 {
    tell(&format!("sortie: {message}"));
    FAILED
}

/// Says on stderr what is worth to be known.
pub fn tell(message: &str) {
    // Where stderr is closed, the code is all that can be told.
    let _ = writeln!(io::stderr(), "{}", printable(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
        for code in [OK, FAILED] {
            assert_eq!(print_to(&mut Broken(ErrorKind::BrokenPipe), "text", code), code);
        }
        assert_eq!(print_to(&mut Broken(ErrorKind::StorageFull), "text", OK), FAILED);
        let mut out = Vec::new();
        assert_eq!(print_to(&mut out, "text\n", OK), OK);
        assert_eq!(out, b"text\n");
        out.clear();
        assert_eq!(print_to(&mut out, "\u{1b}]0;a\u{7}\u{9b}\n", OK), OK);
        assert_eq!(out, b"\\u001b]0;a\\u0007\\u009b\n");
    }
}
