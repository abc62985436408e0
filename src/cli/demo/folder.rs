//! The demo's folder: a configuration, its secrets and its CA, removed when the demo ends.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rand::RngExt;
use rand::distr::Alphanumeric;

/// A folder that only its owner can read; it is removed with all that is in it when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a fresh one in the system's place for temporary files.
    pub fn make() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("sortie-demo-{}", random_text(8)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Writes a file and says where.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files, with throw-away secrets.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Random letters and digits.
pub fn random_text(length: usize) -> String {
    rand::rng().sample_iter(Alphanumeric).take(length).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_files() {
        let folder = Folder::make().unwrap();
        let file = folder.write("x", "y").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "y");
        drop(folder);
        assert!(!file.exists());
    }
}
