//! The sender's part of a long message: it copies pieces into the receiver's memory.

use std::io;

use tagmatch_device::{ReadMode, Readable, RemoteSpan};
use tagmatch_os::process;

use super::connection::Connection;
use super::cooperative::{MessagePieces, SenderSide};

/// A message of which a receiver has offered this worker a part.
pub(crate) struct Copying {
    side: SenderSide,
    /// The bytes, in this worker's memory.
    span: RemoteSpan,
    pieces: MessagePieces,
    /// Where the receiver wants the first of them.
    target: u64,
}

impl Copying {
    /// Takes an offer; `None` if there is no message of that length.
    pub(crate) fn new(number: u16, span: RemoteSpan, target: u64) -> Option<Self> {
        let pieces = MessagePieces::of(usize::try_from(span.length).ok()?);
        target.checked_add(span.length)?;
        Some(Copying { side: SenderSide::new(number, pieces.count()), span, pieces, target })
    }

    /// Copies one piece, if one is left. `readable`: the buffers that the receiver may read.
    /// Returns whether another piece may be left.
    pub(crate) fn step(&mut self, connection: &Connection, readable: Readable<'_>) -> bool {
        // The receiver's FIN ends the exposure.
        let Some(bytes) = readable.bytes(self.span) else { return false };
        let claims = &connection.producer.ring().header().claims.0;
        let Some(piece) = self.side.claim(claims) else { return false };
        let range = self.pieces.bytes(piece);
        let target = self.target + range.start as u64;
        let is_copied = write(connection, target, &bytes[range]).is_ok();
        self.side.release(claims, is_copied);
        // The receiver may sleep until this piece is there.
        connection.notify();
        is_copied
    }
}

/// Writes bytes into the memory of a peer's process, if it is still there.
fn write(connection: &Connection, mut target: u64, mut bytes: &[u8]) -> io::Result<()> {
    let gone = || io::Error::from(io::ErrorKind::NotConnected);
    let (Some(process), ReadMode::Direct) = (connection.process(), connection.read_mode) else {
        return Err(gone());
    };
    while !bytes.is_empty() {
        if !connection.is_certainly_there() {
            return Err(gone());
        }
        match process::write_memory(process.pid, target, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                target = target.saturating_add(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
