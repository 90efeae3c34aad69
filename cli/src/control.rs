//! The control channel between both sides: JSON messages, one a line, over pipes or TCP.
//!
//! A thread reads, so every wait has a time-out whatever the channel is made of, and a side that is
//! busy measuring needs to look at one flag only to learn that the other side has sent a message or
//! has gone. Input from the other side is bounded before it is parsed.

use tagmatch_results::show::one_line;

pub(crate) mod message;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use rustix::net::sockopt;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest line that is read, newline included.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Lines that may wait. A side that sends more breaks the protocol anyway.
const LINES_MAX: usize = 16;

/// A side that does not read for this long has failed.
const WRITE_TIME: Duration = Duration::from_secs(5);
/// TCP keep-alive: after this time without a packet the other machine is asked, at this interval
/// and so many times, whether it is still there.
const ALIVE_TIME: Duration = Duration::from_secs(10);
const ALIVE_PAUSE: Duration = Duration::from_secs(5);
const ALIVE_TIMES: u32 = 3;

/// Why a message could not be received or sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    #[error("the other side has gone")]
    Closed,
    #[error("the other side has been silent for {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("the other side sent no message of tagperf: {0}")]
    Garbage(String),
    #[error("the other side cannot be reached any more: {0}")]
    Broken(io::Error),
}

/// A flag for code that is busy measuring: the other side has sent a message, or has gone.
#[derive(Clone, Default)]
pub(crate) struct Attention(Arc<AtomicUsize>);

impl Attention {
    /// Whether the flag is raised. Costs one relaxed load.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// One end of the channel.
pub(crate) struct Control {
    lines: Receiver<Result<Vec<u8>, ControlError>>,
    writer: Box<dyn Write + Send>,
    /// Counts the lines, and the end, that were not received yet.
    waiting: Attention,
}

impl Control {
    /// Starts to read. `closed` is called on the reading thread when the other side has gone.
    pub(crate) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
        closed: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, lines) = sync_channel(LINES_MAX);
        let waiting = Attention::default();
        let attention = waiting.clone();
        std::thread::Builder::new().name("control".into()).spawn(move || {
            read_lines(reader, &sender, &attention.0);
            closed();
        })?;
        Ok(Self { lines, writer: Box::new(writer), waiting })
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<(), ControlError> {
        let mut line = serde_json::to_vec(message).map_err(|e| ControlError::Broken(e.into()))?;
        line.push(b'\n');
        let written = self.writer.write_all(&line).and_then(|()| self.writer.flush());
        written.map_err(ControlError::Broken)
    }

    /// Waits for a message.
    pub(crate) fn receive<M: DeserializeOwned>(
        &mut self,
        timeout: Duration,
    ) -> Result<M, ControlError> {
        let line = match self.lines.recv_timeout(timeout) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => return Err(ControlError::Silent(timeout)),
            Err(RecvTimeoutError::Disconnected) => return Err(ControlError::Closed),
        };
        self.waiting.0.fetch_sub(1, Ordering::Relaxed);
        serde_json::from_slice(&line).map_err(|error| garbage(&line, &error.to_string()))
    }

    /// Whether the other side has sent a message or has gone.
    pub(crate) fn wants_attention(&self) -> bool {
        self.waiting.is_wanted()
    }

    /// The flag, for code that does not hold the channel.
    pub(crate) fn attention(&self) -> Attention {
        self.waiting.clone()
    }
}

/// Prepares a connection for a [`Control`]: messages are sent at once, and a machine that
/// disappears without closing the connection is noticed.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIME))?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ALIVE_TIME)?;
    sockopt::set_tcp_keepintvl(stream, ALIVE_PAUSE)?;
    Ok(sockopt::set_tcp_keepcnt(stream, ALIVE_TIMES)?)
}

/// Passes on line by line until the end, or until the receiver is dropped.
fn read_lines(
    reader: impl Read,
    lines: &SyncSender<Result<Vec<u8>, ControlError>>,
    waiting: &AtomicUsize,
) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let next = match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(_) if line.last() == Some(&b'\n') => Ok(line),
            Ok(read) if read as u64 == LINE_BYTES_MAX => {
                Err(garbage(&line, "the line is too long"))
            }
            // A line that is cut off, and a reset, count as the end.
            Ok(_) | Err(_) => Err(ControlError::Closed),
        };
        let last = next.is_err();
        waiting.fetch_add(1, Ordering::Relaxed);
        if lines.send(next).is_err() || last {
            return;
        }
    }
}

fn garbage(line: &[u8], why: &str) -> ControlError {
    const SHOWN_BYTES_MAX: usize = 48;
    let shown = &line[..line.len().min(SHOWN_BYTES_MAX)];
    let dots = if shown.len() < line.len() { "..." } else { "" };
    ControlError::Garbage(format!("`{}{dots}` ({})", shown.escape_ascii(), one_line(why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    const SOON: Duration = Duration::from_secs(5);

    fn end() -> (Control, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Control::new(ours.try_clone().unwrap(), ours, || ()).unwrap(), theirs)
    }

    fn receive(bytes: &[u8]) -> Result<Vec<u32>, ControlError> {
        let (mut control, mut other) = end();
        let bytes = bytes.to_vec();
        let writing = std::thread::spawn(move || drop(other.write_all(&bytes)));
        let received = control.receive(SOON);
        drop(control);
        writing.join().unwrap();
        received
    }

    #[test]
    fn messages_there_and_back() {
        let (mut here, other) = end();
        let mut there = Control::new(other.try_clone().unwrap(), other, || ()).unwrap();
        assert!(!there.wants_attention());
        here.send(&[1, 2, 3]).unwrap();
        here.send(&[4]).unwrap();
        assert_eq!(there.receive::<Vec<u32>>(SOON).unwrap(), [1, 2, 3]);
        assert_eq!(there.receive::<Vec<u32>>(SOON).unwrap(), [4]);
        assert!(!there.wants_attention());
        let error = there.receive::<Vec<u32>>(Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, ControlError::Silent(_)));
    }

    #[test]
    fn garbage_is_an_error_not_a_failure() {
        for bytes in [
            &b"\n"[..],
            b"GET / HTTP/1.1\r\n",
            b"{\"x\":1}\n",
            b"[1,2\n",
            b"[-1]\n",
            b"\xff\xfe\x00\n",
            b"[1] [2]\n",
            &[b'['; 65_536],
            &[b'x'; 300_000],
        ] {
            let error = receive(bytes).unwrap_err();
            assert!(matches!(error, ControlError::Garbage(_)), "{error}");
            assert!(!error.to_string().contains(char::is_control) && error.to_string().len() < 300);
        }
        // Nested deeper than the parser follows.
        let deep = [vec![b'['; 60_000], b"\n".to_vec()].concat();
        assert!(matches!(receive(&deep), Err(ControlError::Garbage(_))));
        let long = [b"[1", &[b' '; 60_000][..], b"]\n"].concat();
        assert_eq!(receive(&long).unwrap(), [1]);
    }

    #[test]
    fn an_end_is_noticed_at_once() {
        for last_words in [&b""[..], b"[1", b"[1]"] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let (told, closed) = sync_channel(1);
            let closing = move || told.send(()).unwrap();
            let mut control = Control::new(ours.try_clone().unwrap(), ours, closing).unwrap();
            theirs.write_all(last_words).unwrap();
            drop(theirs);
            closed.recv_timeout(SOON).unwrap();
            assert!(control.wants_attention());
            let error = control.receive::<Vec<u32>>(SOON).unwrap_err();
            assert!(matches!(error, ControlError::Closed), "{error}");
            assert!(
                control.wants_attention()
                    || matches!(control.receive::<Vec<u32>>(SOON), Err(ControlError::Closed))
            );
        }
    }
}
