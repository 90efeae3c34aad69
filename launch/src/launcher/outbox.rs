//! What a helper sends to its launcher. A thread writes it, so a connection that doesn't move holds
//! up nothing else. Output waits until the launcher has printed what was sent before.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::frame::{FromHelper, WINDOW_BYTES};

/// The most frames that wait to be written.
const FRAMES_MAX: usize = 1 << 16;

#[derive(Clone)]
pub(super) struct Outbox {
    /// `None` ends the thread.
    frames: SyncSender<Option<Vec<u8>>>,
    window: Arc<Window>,
}

/// The bytes of output that were sent, and that the launcher has not printed yet.
#[derive(Default)]
struct Window {
    bytes: Mutex<usize>,
    printed: Condvar,
}

impl Window {
    fn bytes(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    /// Starts the thread. The receiver is disconnected when the thread has ended.
    pub(super) fn start(mut to: impl Write + Send + 'static) -> io::Result<(Self, Receiver<()>)> {
        let (frames, waiting) = sync_channel::<Option<Vec<u8>>>(FRAMES_MAX);
        let (running, ended) = sync_channel(0);
        let write = move || {
            // Local variables are dropped in reverse order. So `waiting` is gone when others hear
            // of the end, and nobody can send any more.
            let _running: SyncSender<()> = running;
            let waiting = waiting;
            while let Ok(Some(frame)) = waiting.recv() {
                // If the launcher has gone, the end of standard input comes soon.
                if to.write_all(&frame).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("outbox".into()).spawn(write)?;
        Ok((Outbox { frames, window: Arc::default() }, ended))
    }

    /// Sends a frame. False if too many wait already.
    pub(super) fn send(&self, frame: &FromHelper) -> bool {
        self.frames.try_send(Some(frame.encode())).is_ok()
    }

    /// Sends output, at most [`WINDOW_BYTES`]. Blocks while the launcher has too much to print.
    pub(super) fn print(&self, text: &[u8], is_error: bool) -> io::Result<()> {
        let is_full = |bytes: &mut usize| *bytes > 0 && *bytes + text.len() > WINDOW_BYTES;
        let waited = self.window.printed.wait_while(self.window.bytes(), is_full);
        *waited.unwrap_or_else(PoisonError::into_inner) += text.len();
        let text = text.to_vec();
        let frame = if is_error { FromHelper::Error(text) } else { FromHelper::Output(text) };
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.frames.send(Some(frame.encode())).map_err(gone)
    }

    /// The launcher has printed this much more.
    pub(super) fn printed(&self, count: u32) {
        let mut bytes = self.window.bytes();
        *bytes = bytes.saturating_sub(count as usize);
        self.window.printed.notify_all();
    }

    /// Ends the thread once it has written what was sent so far.
    pub(super) fn finish(&self) {
        let _ = self.frames.send(None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn output_waits_for_the_launcher_and_nothing_else_does() {
        let (outbox, ended) = Outbox::start(io::sink()).unwrap();
        let pieces = AtomicUsize::new(0);
        let size = WINDOW_BYTES / 2;
        thread::scope(|scope| {
            let outbox = &outbox;
            let pieces = &pieces;
            let print = move || {
                outbox.print(&vec![b'x'; size], false).unwrap();
                pieces.fetch_add(1, Ordering::SeqCst);
            };
            scope.spawn(move || (0..4).for_each(|_| print()));
            while pieces.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            assert!(outbox.send(&FromHelper::Started(0, None)));
            assert_eq!(pieces.load(Ordering::SeqCst), 2, "the window is full");
            (0..2).for_each(|_| outbox.printed(u32::try_from(size).unwrap()));
        });
        assert_eq!(pieces.into_inner(), 4);
        outbox.printed(u32::MAX);
        outbox.finish();
        assert!(ended.recv().is_err());
        assert!(outbox.print(b"x", false).is_err(), "the thread has ended");
    }

    /// Without a wake-up for each of them, this test doesn't end.
    #[test]
    fn both_outputs_of_a_process_go_on_when_there_is_room() {
        let (outbox, _ended) = Outbox::start(io::sink()).unwrap();
        outbox.print(&vec![b'x'; WINDOW_BYTES], false).unwrap();
        thread::scope(|scope| {
            for is_error in [false, true] {
                let outbox = &outbox;
                scope.spawn(move || outbox.print(b"x", is_error).unwrap());
            }
            // Both are likely to wait by then.
            thread::sleep(Duration::from_millis(100));
            outbox.printed(u32::try_from(WINDOW_BYTES).unwrap());
        });
    }
}
