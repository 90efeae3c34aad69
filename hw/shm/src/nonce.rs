//! Random bytes in this process' memory by which a peer knows that it reads the right memory, and
//! that the memory is still the peer's to read.
//!
//! Each connection has a nonce of its own, at an address that the hello gives. A read of a peer's
//! memory reads the nonce last, in the same system call. So what was read before it were the bytes
//! of the right process, and its worker had not let go of them: a worker erases the nonce before it
//! gives a buffer back that the peer may be reading. A process that has come to have the peer's
//! number, or that has called exec(3), has something else at that address.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use super::packet::Nonce;

/// The nonce of one connection, in this process' memory. It is erased when this is dropped.
pub(crate) struct OwnNonce {
    /// In a box, so that it doesn't move: the peer was told its address.
    words: Box<[AtomicU64; 2]>,
    nonce: Nonce,
}

impl OwnNonce {
    /// Puts unpredictable bytes into memory of their own.
    pub(crate) fn new() -> std::io::Result<Self> {
        let nonce = Nonce(tagmatch_os::random()?);
        let [a, b] = [0, 8].map(|at| tagmatch_device::bytes::array_at::<8>(&nonce.0, at));
        let words = [a, b].map(|bytes| AtomicU64::new(u64::from_ne_bytes(bytes)));
        Ok(OwnNonce { words: Box::new(words), nonce })
    }

    /// Its address, and its bytes before they are erased.
    pub(crate) fn address_and_bytes(&self) -> (u64, Nonce) {
        ((&raw const *self.words).expose_provenance() as u64, self.nonce)
    }

    /// Erases it: whatever is stored later by this thread is not taken for bytes of a buffer.
    pub(crate) fn erase(&self) {
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        fence(Release);
    }
}

impl Drop for OwnNonce {
    fn drop(&mut self) {
        self.erase();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tagmatch_os::process::Pid;

    use super::*;
    use crate::processes::ReadableProcess;

    #[test]
    fn a_nonce_that_is_erased_is_not_found() {
        let own = OwnNonce::new().unwrap();
        let (nonce_address, nonce) = own.address_and_bytes();
        let process = ReadableProcess { pid: Pid::own(), nonce_address, nonce };
        assert!(process.has_nonce());
        let mut into = [std::mem::MaybeUninit::uninit(); 5];
        let bytes = [1u8, 2, 3, 4, 5];
        let mut read = || process.read((&raw const bytes).expose_provenance() as u64, &mut into);
        assert_eq!(read().unwrap(), (5, true));
        own.erase();
        assert_eq!(read().unwrap(), (5, false));
        assert!(!process.has_nonce());
    }
}
