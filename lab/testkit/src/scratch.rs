//! Files of a test.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A test's own directory, removed at its end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory. `test` tells it from those of the process's other tests.
    pub fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tagmatch-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it, for a command line.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().unwrap()
    }

    /// Writes a file into it, and gives its path.
    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
