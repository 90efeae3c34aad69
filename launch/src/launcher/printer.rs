//! Prints what processes on other machines write. A thread does it, so a reader of the launcher's
//! output that is slow, or reads no more, holds up nothing but output.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread;

use super::event::LauncherEvent;
use super::frame::{ToHelper, WINDOW_BYTES};
use super::link::Link;
use super::output::Flow;

enum Job {
    Print {
        text: Vec<u8>,
        is_error: bool,
        link: Link,
        unprinted: Arc<AtomicUsize>,
    },
    /// Nothing more comes from a machine.
    End,
}

/// What the thread gets from all machines.
#[derive(Clone)]
pub(super) struct Printer(Sender<Job>);

impl Printer {
    pub(super) fn start(flow: Arc<Flow>, events: SyncSender<LauncherEvent>) -> io::Result<Self> {
        let (sender, jobs) = channel();
        let print = move || print(&jobs, &flow, &events);
        thread::Builder::new().name("printer".into()).spawn(print)?;
        Ok(Printer(sender))
    }

    /// What one machine prints.
    pub(super) fn source(&self, link: Link) -> PrintSource {
        PrintSource { printer: self.clone(), link, unprinted: Arc::default() }
    }
}

/// What one machine prints. When it is dropped, and all is printed, an output has ended.
pub(super) struct PrintSource {
    printer: Printer,
    link: Link,
    /// Bytes that are not printed yet.
    unprinted: Arc<AtomicUsize>,
}

impl PrintSource {
    /// Prints a text soon. False if the helper has sent more than it may.
    pub(super) fn print(&self, text: Vec<u8>, is_error: bool) -> bool {
        let before = self.unprinted.fetch_add(text.len(), Ordering::SeqCst);
        let link = self.link.clone();
        let unprinted = Arc::clone(&self.unprinted);
        let is_right = before + text.len() <= WINDOW_BYTES;
        is_right && self.printer.0.send(Job::Print { text, is_error, link, unprinted }).is_ok()
    }
}

impl Drop for PrintSource {
    fn drop(&mut self) {
        let _ = self.printer.0.send(Job::End);
    }
}

fn print(jobs: &Receiver<Job>, flow: &Flow, events: &SyncSender<LauncherEvent>) {
    let mut is_broken = false;
    while let Ok(job) = jobs.recv() {
        let Job::Print { text, is_error, link, unprinted } = job else {
            let _ = events.send(LauncherEvent::OutputEnded);
            continue;
        };
        let done = flow.during(|| {
            if is_error {
                // If nobody reads the errors, the output still may be read.
                let _ = io::stderr().write_all(&text);
            } else if !is_broken {
                let mut to = io::stdout().lock();
                to.write_all(&text).and_then(|()| to.flush())?;
            }
            Ok(())
        });
        if let Err(error) = done {
            is_broken = true;
            let _ = events.send(LauncherEvent::OutputFailed(error));
        }
        unprinted.fetch_sub(text.len(), Ordering::SeqCst);
        link.send(&ToHelper::Printed(u32::try_from(text.len()).unwrap_or(u32::MAX)));
    }
}
