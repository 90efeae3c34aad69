//! The way to a helper on another machine.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::frame::ToHelper;

/// The most frames that wait to be sent. A helper that leaves more unread is given up.
const FRAMES_MAX: usize = 1 << 16;

/// A command to the thread that writes to a helper.
enum ToWriter {
    Frame(Vec<u8>),
    /// The helper has greeted: it speaks this version of the protocol.
    Greeted,
}

/// The way to a helper. Once it is closed, nothing more is sent, and the helper ends. Frames
/// contain the secret, so they wait until the greeting has shown that a helper is at the other end.
#[derive(Clone)]
pub(super) struct Link(Arc<Mutex<Option<SyncSender<ToWriter>>>>);

impl Link {
    /// Starts the thread that writes.
    pub(super) fn start(name: &str, to: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, frames) = sync_channel(FRAMES_MAX);
        let write = move || transmit(&frames, to);
        thread::Builder::new().name(format!("to {name}")).spawn(write)?;
        Ok(Link(Arc::new(Mutex::new(Some(sender)))))
    }

    /// The helper has greeted.
    pub(super) fn open(&self) {
        self.put(ToWriter::Greeted);
    }

    pub(super) fn send(&self, frame: &ToHelper) {
        self.put(ToWriter::Frame(frame.encode()));
    }

    fn put(&self, what: ToWriter) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_sent = sender.as_ref().is_some_and(|to| to.try_send(what).is_ok());
        if !is_sent {
            *sender = None;
        }
    }

    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Writes frames to the helper, from its greeting on, until the link is closed. If the link is
/// closed before the greeting, nothing is ever written.
fn transmit(frames: &Receiver<ToWriter>, mut to: impl Write) {
    let mut waiting = Vec::new();
    loop {
        match frames.recv() {
            Ok(ToWriter::Frame(frame)) if waiting.len() < FRAMES_MAX => waiting.push(frame),
            Ok(ToWriter::Greeted) => break,
            _ => return,
        }
    }
    if waiting.iter().any(|frame| to.write_all(frame).is_err()) {
        return;
    }
    drop(waiting);
    while let Ok(what) = frames.recv() {
        if let ToWriter::Frame(frame) = what
            && to.write_all(&frame).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_before_the_greeting() {
        let written = |what: Vec<ToWriter>| {
            let (sender, frames) = sync_channel(8);
            for what in what {
                sender.send(what).unwrap();
            }
            drop(sender);
            let mut to = Vec::new();
            transmit(&frames, &mut to);
            to
        };
        let frame = |text: &str| ToWriter::Frame(text.into());
        assert_eq!(written(vec![frame("a"), frame("b")]), b"");
        assert_eq!(written(vec![frame("a"), ToWriter::Greeted, frame("b")]), b"ab");
    }
}
