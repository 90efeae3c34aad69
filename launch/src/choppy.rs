//! Connections that answer as badly as they may, for tests.

use std::io::{ErrorKind, Read, Result, Write};

/// Reads and writes one byte at a time. A signal interrupts every other call.
pub(crate) struct Choppy<T> {
    inner: T,
    is_interrupted: bool,
}

impl<T> Choppy<T> {
    pub(crate) fn new(inner: T) -> Self {
        Choppy { inner, is_interrupted: false }
    }

    fn interrupt(&mut self) -> Result<()> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

impl<T: Read> Read for Choppy<T> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.interrupt()?;
        let length = into.len().min(1);
        self.inner.read(&mut into[..length])
    }
}

impl<T: Write> Write for Choppy<T> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.interrupt()?;
        self.inner.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
}
