//! Where a program finds the secret of its job: the environment, or a file that the environment
//! names. Never an argument, which every user of the machine can see.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use tagmatch_os::process::own_uid;

use super::error::SecretError;
use super::secret::Secret;

/// The environment variable that is the secret.
pub const SECRET: &str = "TAGMATCH_SECRET";
/// The environment variable that names a file with the secret. Counts before [`SECRET`].
pub const SECRET_FILE: &str = "TAGMATCH_SECRET_FILE";

impl Secret {
    /// The secret that the environment gives: the contents of the file that `TAGMATCH_SECRET_FILE`
    /// names, or else the value of `TAGMATCH_SECRET`; `None` if neither is set.
    ///
    /// # Errors
    /// There is a secret, and it can't be used. The error says why.
    pub fn from_environment() -> Result<Option<Self>, SecretError> {
        if let Some(path) = env::var_os(SECRET_FILE) {
            return Self::from_file(Path::new(&path)).map(Some);
        }
        env::var_os(SECRET).map(|value| Self::from_bytes(value.as_bytes())).transpose()
    }

    /// The secret that was configured, or else the one that the environment gives, if there is one.
    ///
    /// # Errors
    /// See [`Secret::from_environment`].
    pub fn or_from_environment(configured: Option<&Self>) -> io::Result<Option<Self>> {
        match configured {
            Some(secret) => Ok(Some(secret.clone())),
            None => Self::from_environment().map_err(io::Error::other),
        }
    }

    /// The contents of a file, without line ends behind them. The file must belong to this user,
    /// and its mode must be 0600: readable and writable by its owner alone.
    ///
    /// # Errors
    /// The file can't be read, belongs to another user, has another mode, or has too few bytes or
    /// too many.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let unreadable = |source| SecretError::File { path: path.into(), source };
        let exposed = |what| Err(SecretError::Exposed { path: path.into(), what });
        // Opening a FIFO would wait for its writer.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(NON_BLOCKING)
            .open(path)
            .map_err(unreadable)?;
        // The opened file is asked, not the name: the name may mean another file by now.
        let facts = file.metadata().map_err(unreadable)?;
        if !facts.is_file() {
            return exposed("is not a regular file");
        }
        if facts.uid() != own_uid() {
            return exposed("belongs to another user; it must belong to the user of this process");
        }
        if facts.mode() & 0o7777 != 0o600 {
            return exposed("has a mode other than 0600; chmod 600 makes it private");
        }
        let mut bytes = read(file).map_err(unreadable)?;
        // Of a longer file, only a part was read: what looks like its end is none.
        if bytes.len() <= FILE_BYTES_MAX {
            let last = bytes.iter().rposition(|byte| !b"\r\n".contains(byte));
            bytes.truncate(last.map_or(0, |last| last + 1));
        }
        Self::from_bytes(&bytes)
    }
}

/// `O_NONBLOCK`, as Linux has it on the processors that this project builds for.
const NON_BLOCKING: i32 = 0o4000;

/// The longest file: a secret with a line end.
const FILE_BYTES_MAX: usize = Secret::BYTES_MAX + 2;

/// The contents of a file, up to one byte more than a file may have.
fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file of its own for each test, removed at the end.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(test: &str, contents: &[u8], mode: u32) -> Self {
            let name = format!("tagmatch-secret-{test}-{}", std::process::id());
            let path = env::temp_dir().join(name);
            fs::write(&path, contents).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_private_file_is_read_without_its_line_end() {
        let file = Scratch::new("read", b"0123456789abcdef\r\n", 0o600);
        assert_eq!(Secret::from_file(&file.0).unwrap().expose(), b"0123456789abcdef");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o640, 0o604, 0o644, 0o400, 0o700, 0o1600] {
            let file = Scratch::new("mode", b"0123456789abcdef", mode);
            let error = Secret::from_file(&file.0).unwrap_err().to_string();
            assert!(error.contains("0600") || error.contains("denied"), "{mode:o}: {error}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        for path in ["/tmp", "/dev/zero", "/nonexistent"] {
            assert!(Secret::from_file(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_file_that_is_too_short_or_too_long_is_refused() {
        for length in [0, 15, 1025, 5000] {
            let file = Scratch::new("length", &vec![b'x'; length], 0o600);
            let refused = Secret::from_file(&file.0).unwrap_err();
            assert!(matches!(refused, SecretError::Length { .. }), "{length}: {refused}");
        }
    }

    #[test]
    fn what_stands_behind_many_line_ends_is_not_left_out() {
        for (length, ends) in [(1024, "\r\n"), (16, "\n\n\n"), (1023, "\n\n\n")] {
            let secret = "x".repeat(length);
            let file = Scratch::new("ends", format!("{secret}{ends}").as_bytes(), 0o600);
            assert_eq!(Secret::from_file(&file.0).unwrap().expose(), secret.as_bytes());
        }
        for (length, ends) in [(1024, 2), (1024, 3), (16, 2000)] {
            let contents = ["x".repeat(length), "\n".repeat(ends), "x".into()].concat();
            let file = Scratch::new("behind", contents.as_bytes(), 0o600);
            let refused = Secret::from_file(&file.0).unwrap_err();
            assert!(matches!(refused, SecretError::Length { .. }), "{length}: {refused}");
        }
    }
}
