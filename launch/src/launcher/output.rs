//! Copies the output of processes, a whole line at a time, with the process's name at the
//! beginning.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;
use std::thread;

use super::event::LauncherEvent;
use super::failure::Member;
use super::frame::{self, FromHelper};

/// The longest line, in bytes. A longer line is divided.
const LINE_BYTES_MAX: u16 = 32 << 10;

/// Where the output of a process goes.
#[derive(Clone, Copy)]
pub(super) enum Sink {
    Output,
    Error,
    /// As frames to the launcher, for its standard output.
    OutputFrames,
    /// As frames to the launcher, for its standard error.
    ErrorFrames,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Output => io::stdout().write_all(bytes)?,
            Self::Error => io::stderr().write_all(bytes)?,
            Self::OutputFrames => frame::send(&FromHelper::Output(bytes.to_vec()))?,
            Self::ErrorFrames => frame::send(&FromHelper::Error(bytes.to_vec()))?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Self::Output = self { io::stdout().flush() } else { Ok(()) }
    }
}

/// Counts the outputs that have not ended.
#[derive(Default)]
pub(super) struct Outputs(usize);

impl Outputs {
    /// Starts to copy an output, if there is one.
    pub(super) fn begin(
        &mut self,
        member: Member,
        label: bool,
        from: Option<OwnedFd>,
        to: Sink,
        events: &SyncSender<LauncherEvent>,
    ) -> io::Result<()> {
        let Some(from) = from else { return Ok(()) };
        let events = events.clone();
        let copy = move || {
            // If our own output is closed, copying ends, and closes the process's pipe: the process
            // gets the same error as without the launcher.
            let _ = if label {
                copy_lines(File::from(from), &format!("[{member}] "), to)
            } else {
                copy_bytes(File::from(from), to)
            };
            let _ = events.send(LauncherEvent::OutputEnded);
        };
        thread::Builder::new().name("output".into()).spawn(copy)?;
        self.0 += 1;
        Ok(())
    }

    /// Counts an output that somebody else copies.
    pub(super) fn expect(&mut self) {
        self.0 += 1;
    }

    pub(super) fn ended(&mut self) {
        self.0 -= 1;
    }

    pub(super) fn are_over(&self) -> bool {
        self.0 == 0
    }
}

/// Copies bytes as soon as they come.
fn copy_bytes(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut bytes = vec![0; LINE_BYTES_MAX.into()];
    loop {
        match from.read(&mut bytes)? {
            0 => return Ok(()),
            count => to.write_all(&bytes[..count]).and_then(|()| to.flush())?,
        }
    }
}

fn copy_lines(from: impl Read, label: &str, mut to: impl Write) -> io::Result<()> {
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
        to.write_all(&line)?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        copy_lines(text, "[3] ", &mut out).unwrap();
        out
    }

    #[test]
    fn every_line_has_its_label() {
        assert_eq!(copied(b""), b"");
        assert_eq!(copied(b"a\n\nb"), b"[3] a\n[3] \n[3] b\n");
        let bytes = copied(&[b'x'; LINE_BYTES_MAX as usize + 1]);
        assert_eq!(bytes.iter().filter(|&&byte| byte == b'\n').count(), 2);
    }
}
