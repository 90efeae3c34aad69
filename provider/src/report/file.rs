//! Files that the processes of a job write together.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tagmatch_os::process::check_file_size;

/// How long a process waits for others that write, as long as they do.
const WAIT: Duration = Duration::from_secs(5);
/// A process of the job writes at once what it has locked the file for. If nothing changes for this
/// time, another program has the lock, and no exit waits for that.
const PATIENCE: Duration = Duration::from_millis(300);
/// Time between two looks at the file.
const PAUSE: Duration = Duration::from_millis(2);

/// Longest report that is read back, in bytes.
pub(super) const LENGTH_MAX: u64 = 64 << 20;

/// Replaces the text of a file, with no other process of the job in between. `change` is given the
/// text and the time of its last change, and gives the new text.
pub(crate) fn update(
    path: &Path,
    change: impl FnOnce(&str, SystemTime) -> String,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    // A program that runs with more rights than its caller doesn't follow links of others.
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // Neither a pipe nor a lease of another process makes it wait.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = options.custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    lock(&file)?;
    let mut text = String::new();
    // What isn't text is no report.
    let _ = (&file).take(LENGTH_MAX).read_to_string(&mut text);
    let text = change(&text, file.metadata()?.modified()?);
    replace(&file, &text)
}

/// Writes another text into a file. A text beyond the limit on files (`RLIMIT_FSIZE`) is refused,
/// and the file stays as it is.
pub(super) fn replace(mut file: &File, text: &str) -> io::Result<()> {
    check_file_size(text.len() as u64)?;
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

/// Locks a file. Waits for a limited time, and only as long as other processes change the file.
pub(super) fn lock(file: &File) -> io::Result<()> {
    let began = Instant::now();
    let mut last_state = state(file)?;
    let mut changed_at = began;
    loop {
        // SAFETY: the call has no pointers.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        if locked == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        let now = state(file)?;
        if now != last_state {
            (last_state, changed_at) = (now, Instant::now());
        }
        if changed_at.elapsed() > PATIENCE || began.elapsed() > WAIT {
            return Err(io::Error::other("another program has locked it"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// What changes when a process writes the file.
fn state(file: &File) -> io::Result<(i64, i64, u64)> {
    let of = file.metadata()?;
    Ok((of.mtime(), of.mtime_nsec(), of.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_program_has_locked_is_given_up_in_words() {
        let name = format!("tagmatch-report-locked.{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "as it was").unwrap();
        let other = File::open(&path).unwrap();
        // SAFETY: the call has no pointers.
        assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX) }, 0);
        let refused = update(&path, |_, _| String::new()).unwrap_err();
        let text = std::fs::read_to_string(&path).unwrap();
        drop(other);
        update(&path, |_, _| String::new()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            (refused.to_string().as_str(), &*text),
            ("another program has locked it", "as it was")
        );
    }

    #[test]
    fn writers_at_the_same_time_lose_nothing() {
        let name = format!("tagmatch-report-test.{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let add = |text: &str, _| format!("{text}x");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| update(&path, add).unwrap()));
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.len(), 200);
    }

    #[test]
    fn links_and_folders_are_refused() {
        let name = format!("tagmatch-report-link.{}", std::process::id());
        let link = std::env::temp_dir().join(name);
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let refused = update(&link, |_, _| String::new());
        std::fs::remove_file(&link).unwrap();
        assert!(refused.is_err());
        assert!(update(&std::env::temp_dir(), |_, _| String::new()).is_err());
    }
}
