//! An audit of what a process holds of the system, when a test program ends.
//!
//! In a build with debug assertions, the test programs of the packages that `TAGMATCH_TEST_AUDIT`
//! lists look, when their `main` is over, whether everything that was opened since the first device
//! is closed: descriptors, shared memory, threads, children that nobody has waited for, and
//! temporary files of this process. All tests of the program have ended by then, so whatever is
//! left was forgotten by one of them. The program prints what is left, and ends with an error. The
//! first epoll descriptor of this crate, which every device has, begins the audit, so no test of a
//! device can do without it. `.cargo/config.toml` sets the variable; cargo says which package it
//! runs. A build without debug assertions reads neither.
//!
//! Only programs that cargo has built as tests are asked (they lie in a folder `deps`): another
//! program may end at any place. A process that loads libibverbs, UCX or libfabric isn't asked for
//! its descriptors, since these libraries keep some.

/// Begins the audit of this process, once. Tests without a device call this.
#[inline]
pub fn begin() {
    #[cfg(debug_assertions)]
    at_exit::begin();
}

#[cfg(debug_assertions)]
mod at_exit {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};
    use std::{env, fs, process, thread};

    use crate::notice;

    /// How long threads of ours may take to close descriptors in the background.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// Without such a thread nothing closes anything, but for a thread in its last steps.
    const GRACE: Duration = Duration::from_millis(100);
    /// Between two looks.
    const PAUSE: Duration = Duration::from_millis(1);
    /// Shared memory of ours, by the beginning of its path.
    const MEMORY: [&str; 2] = ["/memfd:tagmatch-", "/dev/shm/tagmatch-"];
    /// Libraries that keep descriptors of their own.
    const LIBRARIES: [&str; 3] = ["/libibverbs", "/libucp", "/libfabric"];
    const THREAD: &str = "the thread";
    /// The exit status of a test program with a test that failed.
    const FAILED: i32 = 101;

    struct Audit {
        process: u32,
        before: BTreeSet<String>,
    }

    static AUDIT: OnceLock<Option<Audit>> = OnceLock::new();

    pub(super) fn begin() {
        AUDIT.get_or_init(|| {
            let packages = env::var("TAGMATCH_TEST_AUDIT").unwrap_or_default();
            let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
            let is_on = packages.split_whitespace().any(|name| name == package);
            if cfg!(loom) || !is_on || !is_test_program() {
                return None;
            }
            let before = resources();
            // SAFETY: `look` has the type that the call wants, and is there as long as the program.
            let is_registered = unsafe { libc::atexit(look) } == 0;
            is_registered.then_some(Audit { process: process::id(), before })
        });
    }

    fn is_test_program() -> bool {
        let program = env::current_exe().unwrap_or_default();
        program.parent().is_some_and(|folder| folder.ends_with("deps"))
    }

    extern "C" fn look() {
        let Some(Some(Audit { process, before })) = AUDIT.get() else { return };
        // A forked child has the handler, too. A process that ends in the midst of a test, on a
        // thread beside the first one, does so on purpose.
        // SAFETY: the call has no arguments.
        let thread = unsafe { libc::gettid() };
        if *process != process::id() || thread != process.cast_signed() {
            return;
        }
        let start = Instant::now();
        loop {
            let left: Vec<String> = resources().difference(before).cloned().collect();
            if left.is_empty() {
                return;
            }
            let has_thread = left.iter().any(|name| name.starts_with(THREAD));
            if start.elapsed() > if has_thread { PATIENCE } else { GRACE } {
                let left = left.join(", ");
                notice::tell(&format!(
                    "tagmatch: a test has left behind: {left}. Which one: run them one by one."
                ));
                // SAFETY: ends the process without running anything.
                unsafe { libc::_exit(FAILED) };
            }
            thread::sleep(PAUSE);
        }
    }

    /// What this process has, and has made: one text for each.
    fn resources() -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        let mut has_library = false;
        for path in paths {
            has_library |= LIBRARIES.iter().any(|name| path.contains(name));
            if MEMORY.iter().any(|name| path.starts_with(name)) {
                found.insert(format!("a mapping of {path}"));
            }
        }
        let own = process::id().to_string();
        for file in entries(env::temp_dir()) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("tagmatch-") && name.split('-').any(|part| part == own) {
                found.insert(format!("the file {}", file.display()));
            }
        }
        for thread in entries("/proc/self/task") {
            let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().map(|child| format!("the child {child}")));
            let name = fs::read_to_string(thread.join("comm")).unwrap_or_default();
            if name.starts_with("tagmatch-") {
                found.insert(format!("{THREAD} {}", name.trim_end()));
            }
        }
        if !has_library {
            // The folder that is being read has a descriptor, too.
            let is_folder = |target: &Path| target.ends_with("fd") && target.starts_with("/proc");
            for descriptor in entries("/proc/self/fd") {
                if let Ok(target) = fs::read_link(&descriptor)
                    && !is_folder(&target)
                {
                    found.insert(format!("{}: {}", descriptor.display(), target.display()));
                }
            }
        }
        found
    }

    fn entries(folder: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use std::env;
    use std::process::Command;

    use crate::event::Epoll;
    use crate::sleep::EventFd;

    const ROLE: &str = "TAGMATCH_TEST_ROLE";

    /// Runs the test below in a process of its own.
    fn run(role: &str) -> (bool, String) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["exit_audit::tests::a_process_of_a_test", "--exact", "--include-ignored"]);
        // Without cargo, nothing says which package this is.
        let package = env!("CARGO_PKG_NAME");
        command.env("CARGO_PKG_NAME", package).env("TAGMATCH_TEST_AUDIT", package);
        let output = command.env(ROLE, role).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    #[ignore = "a process of another test"]
    fn a_process_of_a_test() {
        let role = env::var(ROLE).unwrap_or_default();
        let epoll = Epoll::new().unwrap();
        let event = EventFd::new().unwrap();
        if role == "leaves" {
            std::mem::forget(event);
        }
        drop(epoll);
    }

    #[test]
    fn a_test_program_that_leaves_a_descriptor_behind_fails_and_names_it() {
        assert_eq!(run("clean"), (true, String::new()));
        let (is_good, text) = run("leaves");
        assert!(!is_good && text.contains("anon_inode:[eventfd]"), "{text}");
    }
}
