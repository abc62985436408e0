//! `sortie completions` and `sortie man`: every command is in them, and a shell can read what is meant for it.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::cli::run;

/// The names of all commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = run(["--help"], "").stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 12 && names.contains(&"try".to_owned()), "{names:?}");
    names
}

#[test]
fn every_shell_completes_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(["completions", shell], "");
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        for command in commands() {
            let found = script.stdout.split(|c: char| !c.is_alphanumeric()).any(|w| w == command);
            assert!(found, "{shell} has no {command}");
        }
        assert!(script.stdout.contains("show-request"), "{shell}");
    }
    assert_eq!(run(["completions", "csh"], "").code, Some(2));
}

#[test]
fn bash_reads_its_script() {
    let script = run(["completions", "bash"], "").stdout;
    let mut bash = Command::new("bash");
    let read = "bash -n /dev/stdin && echo read";
    bash.args(["-c", read]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bash.spawn().expect("bash starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(script.as_bytes()).expect("written");
    drop(input);
    let output = child.wait_with_output().expect("bash ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("read\n", ""));
}

#[test]
fn every_command_has_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = run(["man", "--out", folder.path().to_str().expect("UTF-8")], "");
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""));
    let main = run(["man"], "").stdout;
    for command in commands() {
        assert!(main.contains(&format!("sortie\\-{command}(1)")), "no {command} in {main}");
        let page = run(["man", &command], "");
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{command}");
        assert!(page.stdout.contains(&format!(".TH sortie-{command} 1")), "{page:#?}");
        let file = folder.path().join(format!("sortie-{command}.1"));
        assert_eq!(std::fs::read_to_string(file).expect("a page"), page.stdout);
    }
    let mut files = std::fs::read_dir(folder.path()).expect("the folder");
    let about_help = |name: &str| name.contains("help");
    assert!(files.all(|file| !about_help(&file.expect("a file").file_name().to_string_lossy())));
    let unknown = run(["man", "nothing"], "");
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("there are approvals, call, calls, check"), "{unknown:#?}");
    let nowhere = run(["man", "--out", "/nowhere/at/all"], "");
    assert_eq!(nowhere.code, Some(1));
}
