//! Copies the output of processes, a whole line at a time, with the process's name at the
//! beginning.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use super::event::{LauncherEvent, next};
use super::failure::Member;
use super::outbox::Outbox;

/// The longest line, in bytes. A longer line is divided.
const LINE_BYTES_MAX: u16 = 32 << 10;
/// How long a hurried wait for the rest of all outputs takes.
const HURRIED_TIME: Duration = Duration::from_secs(1);

/// Where the output of a process goes.
#[derive(Clone)]
pub(super) enum Sink {
    Output,
    Error,
    /// To the launcher, for its standard output.
    OutputFrames(Outbox),
    /// To the launcher, for its standard error.
    ErrorFrames(Outbox),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Output => io::stdout().write_all(bytes)?,
            Self::Error => io::stderr().write_all(bytes)?,
            Self::OutputFrames(outbox) => outbox.print(bytes, false)?,
            Self::ErrorFrames(outbox) => outbox.print(bytes, true)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Self::Output = self { io::stdout().flush() } else { Ok(()) }
    }
}

/// Tells whether output moves: the writes of the threads that copy output are counted.
#[derive(Default)]
pub(super) struct Flow {
    /// The number of threads that write, and so may be held up.
    writing: AtomicUsize,
    /// The number of writes that have ended.
    written: AtomicU64,
}

impl Flow {
    /// Runs a write.
    pub(super) fn during<T>(&self, write: impl FnOnce() -> T) -> T {
        self.writing.fetch_add(1, Ordering::SeqCst);
        let done = write();
        self.written.fetch_add(1, Ordering::SeqCst);
        self.writing.fetch_sub(1, Ordering::SeqCst);
        done
    }
}

/// Counts the outputs that have not ended.
#[derive(Default)]
pub(super) struct Outputs {
    open: usize,
    pub(super) flow: Arc<Flow>,
}

impl Outputs {
    /// Starts to copy an output, if there is one; with this name before each line, if any.
    pub(super) fn begin(
        &mut self,
        label: Option<Member>,
        from: Option<OwnedFd>,
        to: Sink,
        events: &SyncSender<LauncherEvent>,
    ) -> io::Result<()> {
        let Some(from) = from else { return Ok(()) };
        let events = events.clone();
        let flow = Arc::clone(&self.flow);
        let copy = move || {
            let done = if let Some(member) = label {
                copy_lines(File::from(from), &format!("[{member}] "), to.clone(), &flow)
            } else {
                copy_bytes(File::from(from), to.clone(), &flow)
            };
            // The process's pipe is closed now: the process gets the same error as without the
            // launcher.
            if let (Err(error), Sink::Output) = (done, to) {
                let _ = events.send(LauncherEvent::OutputFailed(error));
            }
            let _ = events.send(LauncherEvent::OutputEnded);
        };
        thread::Builder::new().name("output".into()).spawn(copy)?;
        self.open += 1;
        Ok(())
    }

    /// Counts an output that somebody else copies.
    pub(super) fn expect(&mut self) {
        self.open += 1;
    }

    pub(super) fn ended(&mut self) {
        self.open -= 1;
    }

    /// Waits until all outputs have ended. It gives up if nothing has come for this time: a process
    /// may hold an output open that belongs to no job. It waits for as long as a write takes, for
    /// instance to a pipe that is read slowly. `hurries` is asked about every other event. Once it
    /// has said yes, the wait ends soon.
    pub(super) fn wait(
        &mut self,
        events: &Receiver<LauncherEvent>,
        idle_time: Duration,
        is_hurried: bool,
        mut hurries: impl FnMut(LauncherEvent) -> bool,
    ) {
        let soon = || Some(Instant::now() + HURRIED_TIME);
        let mut deadline = if is_hurried { soon() } else { None };
        let written = || self.flow.written.load(Ordering::SeqCst);
        let mut before = written();
        while self.open > 0 {
            let until = deadline.unwrap_or_else(|| Instant::now() + idle_time);
            match next(events, Some(until)) {
                Some(LauncherEvent::OutputEnded) => self.open -= 1,
                Some(event) => {
                    if hurries(event) {
                        deadline = deadline.or_else(soon);
                    }
                }
                None if deadline.is_some() => return,
                None => {
                    let is_writing = self.flow.writing.load(Ordering::SeqCst) > 0;
                    if !is_writing && written() == before {
                        return;
                    }
                    before = written();
                }
            }
        }
    }
}

/// Copies bytes as soon as they come.
fn copy_bytes(mut from: impl Read, mut to: impl Write, flow: &Flow) -> io::Result<()> {
    let mut bytes = vec![0; LINE_BYTES_MAX.into()];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => flow.during(|| to.write_all(&bytes[..count]).and_then(|()| to.flush()))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn copy_lines(from: impl Read, label: &str, mut to: impl Write, flow: &Flow) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(label.as_bytes());
        if from.by_ref().take(LINE_BYTES_MAX.into()).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // The line is written in one call, so that lines of several ranks don't mix.
        flow.during(|| to.write_all(&line).and_then(|()| to.flush()))?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::choppy::Choppy;

    /// Waits for outputs of which one never ends, while `act` is called again and again. Fails
    /// if the wait doesn't end.
    fn wait_ends(is_hurried: bool, act: impl Fn(&Flow, &SyncSender<LauncherEvent>)) {
        let (to_outputs, events) = sync_channel(1);
        let (tell, told) = sync_channel(1);
        let mut outputs = Outputs::default();
        outputs.expect();
        let flow = Arc::clone(&outputs.flow);
        thread::spawn(move || {
            let idle_time = Duration::from_millis(50);
            outputs.wait(&events, idle_time, is_hurried, |_| true);
            tell.send(()).unwrap();
        });
        let begun = Instant::now();
        while told.recv_timeout(Duration::from_millis(10)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the wait doesn't end");
            act(&flow, &to_outputs);
        }
    }

    #[test]
    fn the_wait_for_an_output_that_is_held_open_ends_after_its_last_write() {
        let writes = AtomicUsize::new(0);
        wait_ends(false, |flow, _| {
            if writes.fetch_add(1, Ordering::SeqCst) < 50 {
                flow.during(|| ());
            }
        });
    }

    #[test]
    fn a_hurried_wait_ends_although_requests_to_end_go_on_to_come() {
        for is_hurried in [true, false] {
            wait_ends(is_hurried, |_, events| {
                let _ = events.try_send(LauncherEvent::Signal(2));
            });
        }
    }

    fn copied(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let flow = Flow::default();
        copy_lines(Choppy::new(text), "[3] ", Choppy::new(&mut out), &flow).unwrap();
        out
    }

    #[test]
    fn bytes_are_copied_whole_however_few_a_call_takes() {
        let mut out = Vec::new();
        let text = b"a\n\xffb";
        copy_bytes(Choppy::new(&text[..]), Choppy::new(&mut out), &Flow::default()).unwrap();
        assert_eq!(out, text);
    }

    /// A wait for outputs that would give up at once if nothing were written.
    fn wait(outputs: &mut Outputs, events: &Receiver<LauncherEvent>) {
        outputs.wait(events, Duration::from_millis(1), false, |_| false);
    }

    #[test]
    fn outputs_are_waited_for_while_one_of_them_is_being_written() {
        let (sender, events) = sync_channel(1);
        let mut outputs = Outputs::default();
        outputs.expect();
        // A process may hold an output open for ever.
        wait(&mut outputs, &events);
        assert_eq!(outputs.open, 1);
        let flow = Arc::clone(&outputs.flow);
        let (begins, begun) = sync_channel(1);
        let writer = thread::spawn(move || {
            flow.during(|| {
                begins.send(()).unwrap();
                // Longer than the wait would last without this write.
                thread::sleep(Duration::from_millis(100));
                sender.send(LauncherEvent::OutputEnded).unwrap();
            });
        });
        begun.recv().unwrap();
        wait(&mut outputs, &events);
        assert_eq!(outputs.open, 0, "the wait has ended before the output");
        writer.join().unwrap();
    }

    #[test]
    fn every_line_has_its_label() {
        assert_eq!(copied(b""), b"");
        assert_eq!(copied(b"a\n\nb"), b"[3] a\n[3] \n[3] b\n");
        let bytes = copied(&[b'x'; LINE_BYTES_MAX as usize + 1]);
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }
}
