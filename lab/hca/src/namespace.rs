//! What a program sees of `/dev` and `/sys/class`: all that was there, and the devices.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::settings::Settings;
use crate::sysfs;

/// Why a program can't be shown the devices.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamespaceError {
    /// Without root, a user namespace is needed.
    #[error(
        "this system allows no user namespace ({0}): run tagmatch-hca as root, or have root type: sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    User(io::Error),
    /// A step has failed.
    #[error("{what}: {why}")]
    Step {
        /// What was tried.
        what: String,
        /// Why it failed.
        why: io::Error,
    },
}

fn step<T, E: Into<io::Error>>(what: &str, done: Result<T, E>) -> Result<T, NamespaceError> {
    done.map_err(|why| NamespaceError::Step { what: what.to_owned(), why: why.into() })
}

/// Gives this process, and the program that it becomes, a view of its own.
pub(crate) fn enter(settings: &Settings) -> Result<(), NamespaceError> {
    let user = geteuid().as_raw();
    let group = getegid().as_raw();
    // SAFETY: this process has one thread, and shares no memory that depends on namespaces.
    let own = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    if own.is_err() {
        // SAFETY: as above.
        let own = unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) };
        own.map_err(|error| NamespaceError::User(error.into()))?;
        step("/proc/self/setgroups", fs::write("/proc/self/setgroups", "deny"))?;
        let map = |file: &str, id: u32| fs::write(file, format!("{id} {id} 1"));
        step("/proc/self/uid_map", map("/proc/self/uid_map", user))?;
        step("/proc/self/gid_map", map("/proc/self/gid_map", group))?;
    }
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    step("making mounts private", mount_change("/", private))?;
    let class = Path::new("/sys/class");
    cover(class, &["infiniband", "infiniband_verbs"])?;
    step("/sys/class", sysfs::make(class, settings))?;
    let dev = Path::new("/dev");
    cover(dev, &["infiniband"])?;
    for number in &settings.devices {
        let node = dev.join(format!("infiniband/uverbs{number}"));
        step("/dev/infiniband", fs::write(&node, ""))?;
        // A character device that refuses write(2): a library that gives commands by it fails.
        step("binding /dev/full", mount_bind_recursive("/dev/full", &node))?;
    }
    Ok(())
}

/// Covers a directory by one in memory that has the same entries. Those of `open` may get more
/// entries: they are directories of the new one, with the same entries again.
fn cover(at: &Path, open: &[&str]) -> Result<(), NamespaceError> {
    let what = at.display().to_string();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old = step(&what, openat(CWD, at, flags, Mode::empty()))?;
    let under = step(&what, list(&old))?;
    let options = c"mode=0755,size=16m";
    let none = MountFlags::empty();
    step(&format!("mounting over {what}"), mount("tagmatch-hca", at, "tmpfs", none, options))?;
    for name in open {
        step(&what, fs::create_dir(at.join(name)))?;
    }
    for name in under {
        let is_open = open.iter().any(|open| *open == name);
        if is_open {
            let part = step(&what, openat(&old, &*name, flags, Mode::empty()))?;
            for inner in step(&what, list(&part))? {
                step(&what, show(&part, &inner, &at.join(&name).join(&inner)))?;
            }
        } else {
            step(&what, show(&old, &name, &at.join(&name)))?;
        }
    }
    Ok(())
}

fn path_of(folder: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

fn list(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    fs::read_dir(path_of(folder))?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Shows an entry of a covered directory in its place again.
fn show(folder: &OwnedFd, name: &OsString, at: &Path) -> io::Result<()> {
    let from = path_of(folder).join(name);
    let kind = fs::symlink_metadata(&from)?.file_type();
    if kind.is_symlink() {
        return symlink(fs::read_link(&from)?, at);
    }
    if kind.is_dir() {
        fs::create_dir(at)?;
    } else {
        fs::write(at, "")?;
    }
    // An entry that may not be bound, such as a file of another namespace, is left out.
    if let Err(error) = mount_bind_recursive(&from, at) {
        if kind.is_dir() {
            fs::remove_dir(at)?
        } else {
            fs::remove_file(at)?
        }
        let _ = error;
    }
    Ok(())
}
