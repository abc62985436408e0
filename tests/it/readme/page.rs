//! Reads README.md, and runs its shell lines in a folder of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The page or a part of it.
#[derive(Debug, Clone)]
pub(super) struct Page {
    pub(super) text: String,
}

impl Page {
    pub(super) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        Self { text: fs::read_to_string(path).expect("README.md") }
    }

    /// What stands under a heading, up to the next one of its level or above.
    pub(super) fn section(&self, heading: &str) -> Self {
        let level = heading.split(' ').next().expect("marks").len();
        let ends = |line: &str| {
            let marks = line.bytes().take_while(|byte| *byte == b'#').count();
            (1..=level).contains(&marks) && line.as_bytes().get(marks) == Some(&b' ')
        };
        let lines = self.text.lines().skip_while(|line| *line != heading).skip(1);
        let text: Vec<&str> = lines.take_while(|line| !ends(line)).collect();
        assert!(!text.is_empty(), "nothing stands under {heading}");
        Self { text: text.join("\n") }
    }

    /// The page without what stands under a heading.
    pub(super) fn without(&self, heading: &str) -> Self {
        Self { text: self.text.replacen(&self.section(heading).text, "", 1) }
    }

    /// The fenced blocks of this language, in order.
    pub(super) fn blocks(&self, language: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let Some(found) = line.strip_prefix("```") else { continue };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if found == language {
                blocks.push(block.join("\n") + "\n");
            }
        }
        blocks
    }

    /// The cells of the table's rows, without its heading.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let tables = self.text.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let rows: Vec<_> = tables.map(cells).skip(2).collect();
        assert!(!rows.is_empty(), "no table in {}", self.text);
        rows
    }

    /// Whether a heading has this anchor.
    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        let slug = |line: &str| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            let kept: String =
                kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-')).collect();
            kept.replace(' ', "-")
        };
        self.text.lines().any(|line| line.starts_with('#') && slug(line) == anchor)
    }
}

/// What stands between backticks.
pub(super) fn backticked(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A block's commands, continued lines joined.
pub(super) fn lines(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    joined.lines().map(|line| line.split("   ").collect::<Vec<_>>().join(" ")).collect()
}

/// A command's words: quotes as a shell has them, and `$(cat FILE)` within double ones.
pub(super) fn words(line: &str, folder: &Path) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let (inside, after) = rest[1..].split_once(quote).expect("a closing quote");
                (inside.to_owned(), after)
            }
            _ => {
                let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
                (word.to_owned(), after)
            }
        };
        words.push(match word.split_once("$(cat ") {
            None => word,
            Some((before, command)) => {
                let file = command.strip_suffix(')').expect("the end of the command");
                let text = fs::read_to_string(folder.join(file)).expect("the file");
                format!("{before}{}", text.trim_end())
            }
        });
        rest = after.trim_start();
    }
    words
}

/// Runs lines by `sh`, with the binary under test as `sortie`.
pub(super) struct Shell {
    home: tempfile::TempDir,
    folder: PathBuf,
}

impl Shell {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("a folder");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sortie"), bin.join("sortie"))
            .expect("a link");
        let folder = home.path().join("clone");
        fs::create_dir(&folder).expect("a folder");
        // What the page takes out of a clone.
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
        std::os::unix::fs::symlink(deploy, folder.join("deploy")).expect("a link");
        Self { home, folder }
    }

    /// Where lines run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// From now on lines run there.
    pub(super) fn move_to(&mut self, folder: &Path) {
        self.folder = folder.to_owned();
    }

    pub(super) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).expect("a file")
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("written");
    }

    /// What it prints; fails unless the line ends with 0, or as its comment `# exits 1` says.
    #[track_caller]
    pub(super) fn run(&self, line: &str) -> String {
        let system = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{system}", self.home.path().join("bin").display());
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.folder).env("PATH", path);
        let output = command.stdin(Stdio::null()).output().expect("sh runs");
        let expected = line.split_once("# exits ").map_or(Some(0), |(_, code)| code.parse().ok());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), expected, "{line}\n{stdout}\n{stderr}");
        assert_eq!(stderr, "", "{line}");
        stdout
    }
}

#[test]
fn words_are_taken_as_a_shell_takes_them() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("key"), "sk\n").expect("written");
    let line = r#"curl -H "A: $(cat key)"  -d '{"a": "b"}' x"#;
    assert_eq!(words(line, folder.path()), ["curl", "-H", "A: sk", "-d", r#"{"a": "b"}"#, "x"]);
}
