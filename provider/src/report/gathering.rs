//! The processes of a job on one machine gather their rows in shared memory, and the last one that
//! lives prints them.
//!
//! 1. A process joins when it opens its first endpoint: it opens the job's file, and holds a lock
//!    on it as long as it lives (fcntl(2), a read lock). A file that nobody holds is of a job that
//!    was killed, and begins anew.
//! 2. When as many have joined as the machine has, the file loses its name. So nothing is left if
//!    all of them are killed.
//! 3. A process that ends adds its row. If it is alone with its lock, all others have ended or were
//!    killed, and it prints the report.
//!
//! The lock belongs to the process, not to its forked children, and ends with the process. Another
//! lock (flock(2)) is held for each change of the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::file;
use super::job::Job;

/// How often a file is opened anew, because another process has just taken its name away.
const ATTEMPTS: usize = 100;

/// This process's part in a gathering.
pub(crate) struct Gathering {
    file: File,
    path: PathBuf,
}

/// The content of the file: how many have joined, and the report so far.
struct Content {
    joined: u64,
    report: String,
}

impl Content {
    fn read(mut file: &File) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let mut text = String::new();
        file.take(file::LENGTH_MAX).read_to_string(&mut text)?;
        let (joined, report) = text.split_once('\n').unwrap_or_default();
        let joined = joined.parse().unwrap_or(0);
        Ok(Content { joined, report: report.to_owned() })
    }

    fn write(&self, file: &File) -> io::Result<()> {
        file::replace(file, &format!("{}\n{}", self.joined, self.report))
    }
}

impl Gathering {
    /// Joins the job's gathering, or begins it.
    pub(crate) fn join(job: &Job) -> io::Result<Self> {
        // SAFETY: the call has no pointers.
        let user = unsafe { libc::geteuid() };
        let path = PathBuf::from(format!("/dev/shm/tagmatch-report.{user}.{}", job.local_name));
        for _ in 0..ATTEMPTS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
            let file = options.custom_flags(flags).open(&path)?;
            let metadata = file.metadata()?;
            // A file that another user has put there is not ours to write.
            if !metadata.is_file() || metadata.uid() != user {
                return Err(io::Error::other(format!("{} belongs to another", path.display())));
            }
            let gathering = Gathering { file, path: path.clone() };
            if gathering.changed(|gathering| gathering.enter(job.local_size))? {
                return Ok(gathering);
            }
        }
        Err(io::Error::other(format!("{} changes all the time", path.display())))
    }

    /// `false`: the file has lost its name meanwhile.
    fn enter(&self, size: Option<u64>) -> io::Result<bool> {
        if !self.has_name() {
            return Ok(false);
        }
        let mut content = if self.is_alone()? {
            Content { joined: 0, report: String::new() }
        } else {
            Content::read(&self.file)?
        };
        lock(&self.file, libc::F_SETLK, libc::F_RDLCK)?;
        content.joined += 1;
        content.write(&self.file)?;
        if size.is_some_and(|size| content.joined >= size) {
            std::fs::remove_file(&self.path)?;
        }
        Ok(true)
    }

    /// Adds this process's row: `change` gives the new report. Gives the report if all others have
    /// ended.
    pub(crate) fn leave(self, change: impl FnOnce(&str) -> String) -> io::Result<Option<String>> {
        self.changed(|gathering| {
            let mut content = Content::read(&gathering.file)?;
            content.report = change(&content.report);
            if !gathering.is_alone()? {
                content.write(&gathering.file)?;
                return Ok(None);
            }
            if gathering.has_name() {
                std::fs::remove_file(&gathering.path)?;
            }
            Ok(Some(content.report))
        })
    }

    /// Runs a change with no other process's in between.
    fn changed<R>(&self, change: impl FnOnce(&Self) -> io::Result<R>) -> io::Result<R> {
        file::lock(&self.file)?;
        let result = change(self);
        // SAFETY: the call has no pointers, and the descriptor is open.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        result
    }

    /// Whether the path leads to this file.
    fn has_name(&self) -> bool {
        let of = |metadata: &std::fs::Metadata| (metadata.dev(), metadata.ino());
        let own = self.file.metadata();
        let named = std::fs::symlink_metadata(&self.path);
        matches!((own, named), (Ok(own), Ok(named)) if of(&own) == of(&named))
    }

    /// Whether no other process has joined and lives.
    fn is_alone(&self) -> io::Result<bool> {
        let other = lock(&self.file, libc::F_GETLK, libc::F_WRLCK)?;
        Ok(i32::from(other) == libc::F_UNLCK)
    }
}

/// Sets the lock of this process, or asks for one in the way of it. Gives the lock's type as the
/// call leaves it.
fn lock(file: &File, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::c_short> {
    // SAFETY: all fields are integers. Zero stands for the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    // SAFETY: `lock` lives through the call, and the descriptor is open.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(lock.l_type) }
}
