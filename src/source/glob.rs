//! Patterns such as `tools.d/*.yaml`: the files that they name, and the folders in which that can change.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// What a pattern names now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expansion {
    /// Files, in the order of their paths.
    pub(super) files: Vec<PathBuf>,
    /// Folders that were listed for it.
    pub(super) folders: Vec<PathBuf>,
}

/// Finds what a pattern names. In each part of a path `*` stands for any run of characters and `?` for one; what begins
/// with a dot is only named by a part that begins with one. A path without either names its file, if it is there or not.
pub(super) fn expand(pattern: &Path) -> io::Result<Expansion> {
    let mut expansion = Expansion::default();
    let mut paths = vec![PathBuf::new()];
    let mut is_pattern = false;
    for part in pattern.components() {
        let Some(text) = wild(&part) else {
            paths.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        is_pattern = true;
        let mut found = Vec::new();
        for folder in paths {
            for name in names(&folder)?.into_iter().filter(|name| matches(text, name)) {
                found.push(folder.join(name));
            }
            expansion.folders.push(folder);
        }
        paths = found;
    }
    // A link to nowhere is a file that cannot be read: it must not seem to be gone.
    let is_file = |path: &PathBuf| match std::fs::metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(_) => path.is_symlink(),
    };
    expansion.files = paths.into_iter().filter(|path| !is_pattern || is_file(path)).collect();
    expansion.files.sort();
    Ok(expansion)
}

/// A part with a wildcard. One that is not UTF-8 has none.
fn wild<'p>(part: &Component<'p>) -> Option<&'p str> {
    match part {
        Component::Normal(text) => text.to_str().filter(|text| text.contains(['*', '?'])),
        _ => None,
    }
}

/// What stands in a folder, in order; one that is not there holds nothing.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    match std::fs::read_dir(folder) {
        Ok(entries) => {
            let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
            names.map(|mut names| {
                names.sort();
                names
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a name fits a part of a pattern.
fn matches(pattern: &str, name: &OsString) -> bool {
    let Some(name) = name.to_str() else { return false };
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // Where the last `*` stands, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    let (mut at, mut taken) = (0, 0);
    while let Some(letter) = name.get(taken) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, taken));
                at += 1;
            }
            Some(wanted) if wanted == letter || *wanted == '?' => {
                at += 1;
                taken += 1;
            }
            _ => match star {
                Some((place, from)) => {
                    star = Some((place, from + 1));
                    (at, taken) = (place + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, name: &str, fits: bool) {
        assert_eq!(matches(pattern, &name.into()), fits, "{pattern} {name}");
    }

    #[test]
    fn a_part_of_a_pattern_is_the_whole_name() {
        check("*.yaml", "a.yaml", true);
        check("*.yaml", ".yaml", false);
        check("*.yaml", "a.yaml.new", false);
        check("*.yaml", "..data", false);
        check("..*", "..data", true);
        check("*", "", true);
        check("a*b*c", "aXbYbZc", true);
        check("a*b*c", "aXc", false);
        check("team-?.yaml", "team-é.yaml", true);
        check("team-?.yaml", "team-.yaml", false);
        check("*a*a*a*a*a*a*b", &"a".repeat(200), false);
    }

    #[test]
    fn files_come_in_order_and_folders_and_hidden_names_do_not() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        for folder in ["tools.d", "tools.d/x.yaml", "teams", "teams/b", "teams/a", "teams/..old"] {
            std::fs::create_dir(path(folder)).expect("a folder");
        }
        let names = ["tools.d/b.yaml", "tools.d/a.yaml", "tools.d/a.yml", "tools.d/.c.yaml"];
        for name in names.iter().chain(&["teams/b/t.yaml", "teams/..old/t.yaml"]) {
            std::fs::write(path(name), "").expect("written");
        }
        std::os::unix::fs::symlink("nowhere", path("tools.d/z.yaml")).expect("a link");
        let files = |pattern: &str| expand(&path(pattern)).expect("listed").files;
        let named = ["tools.d/a.yaml", "tools.d/b.yaml", "tools.d/z.yaml"].map(path);
        assert_eq!(files("tools.d/*.yaml"), named);
        assert_eq!(files("teams/*/t.yaml"), [path("teams/b/t.yaml")]);
        assert_eq!(files("teams/*/none.yaml"), [] as [PathBuf; 0]);
        assert_eq!(files("nowhere/*.yaml"), [] as [PathBuf; 0]);
        assert_eq!(files("nowhere/a.yaml"), [path("nowhere/a.yaml")]);
        let folders = expand(&path("teams/*/*.yaml")).expect("listed").folders;
        assert_eq!(folders, [path("teams"), path("teams/a"), path("teams/b")]);
        assert!(expand(&path("tools.d/a.yaml/*.yaml")).is_err(), "a file is no folder");
    }
}
