//! What this build is called: facts of the sources and the compiler, never of the time or the machine.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The revision of the sources, where the build was told one.
pub const REVISION: Option<&str> = option_env!("SORTIE_REVISION");

/// The compiler's version, where the build was told it.
pub const RUSTC: Option<&str> = option_env!("SORTIE_RUSTC");

/// One text for `--version`: `0.1.0`, or `0.1.0 (1f2e3d4c5b6a, rustc 1.95.0)`.
pub fn text() -> String {
    told(VERSION, REVISION, RUSTC)
}

fn told(version: &str, revision: Option<&str>, rustc: Option<&str>) -> String {
    let rustc = rustc.map(|rustc| format!("rustc {rustc}"));
    let known: Vec<&str> = revision.into_iter().chain(rustc.as_deref()).collect();
    match known.is_empty() {
        true => version.to_owned(),
        false => format!("{version} ({})", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_build_tells_what_it_knows() {
        assert_eq!(told("0.1.0", None, None), "0.1.0");
        assert_eq!(told("0.1.0", Some("1f2e"), None), "0.1.0 (1f2e)");
        assert_eq!(told("0.1.0", Some("1f2e"), Some("1.95.0")), "0.1.0 (1f2e, rustc 1.95.0)");
    }
}
