//! Which mutant of `lab/mutants` is chosen: the one whose number is in `TAGMATCH_MUTANT`. If
//! `TAGMATCH_REACHED` names a folder instead, each process writes there which mutants it reaches.

use std::cell::RefCell;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process;
use std::sync::OnceLock;
use std::thread;

struct ChosenMutant {
    /// No mutant has the number 0.
    mutant: u32,
    /// A file in the folder of those that are reached.
    reached: Option<File>,
}

static CHOICE: OnceLock<ChosenMutant> = OnceLock::new();

thread_local! {
    /// Whether this thread has written a number. Looked up by the number, because loops ask often.
    static WRITTEN: RefCell<Vec<bool>> = RefCell::default();
}

/// Whether this mutant is chosen. The environment is read once.
#[inline]
pub fn mutant(number: u32) -> bool {
    let choice = CHOICE.get_or_init(|| ChosenMutant {
        mutant: env::var("TAGMATCH_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0),
        reached: env::var_os("TAGMATCH_REACHED").and_then(|folder| {
            let path = Path::new(&folder).join(process::id().to_string());
            OpenOptions::new().create(true).append(true).open(path).ok()
        }),
    });
    if let Some(file) = &choice.reached {
        write(file, number);
    }
    choice.mutant == number
}

/// Writes the number and the thread's name, which is that of the test in its first thread. Each
/// line is one call, so a process that ends at any time has written what it has reached.
#[cold]
fn write(mut file: &File, number: u32) {
    let is_new = WRITTEN.try_with(|written| {
        let Ok(mut written) = written.try_borrow_mut() else { return false };
        let at = number as usize;
        if written.len() <= at {
            written.resize(at + 1, false);
        }
        !std::mem::replace(&mut written[at], true)
    });
    // A thread that ends has no name any more.
    let name = match is_new {
        Ok(false) => return,
        Ok(true) => thread::current().name().unwrap_or("-").to_owned(),
        Err(_) => "-".to_owned(),
    };
    let _ = file.write_all(format!("{number}\t{name}\n").as_bytes());
}
