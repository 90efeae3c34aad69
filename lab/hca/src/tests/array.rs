//! The memory of a program, as an array.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::memory::{Memory, MemoryError};

/// Where the memory of each program begins, and its length.
pub(super) const BASE: u64 = 0x10_0000;
pub(super) const LENGTH: usize = 2 << 20;

/// The memory of a program.
#[derive(Clone)]
pub(super) struct Array {
    bytes: Arc<Mutex<Vec<u8>>>,
    lockable: u64,
    /// While another lock is held, the program withholds its memory.
    pub(super) withheld: Arc<Mutex<()>>,
    /// The process has ended.
    pub(super) is_gone: Arc<AtomicBool>,
}

impl Array {
    /// `lockable`: as [`Memory::lockable`] says.
    pub(super) fn new(lockable: u64) -> Self {
        let bytes = Arc::new(Mutex::new(vec![0; LENGTH]));
        Self { bytes, lockable, withheld: Arc::default(), is_gone: Arc::default() }
    }

    fn at(at: u64, length: usize) -> Result<Range<usize>, MemoryError> {
        let start = at.checked_sub(BASE).ok_or(MemoryError::Fault)? as usize;
        let end = start.checked_add(length).ok_or(MemoryError::Fault)?;
        if end > LENGTH { Err(MemoryError::Fault) } else { Ok(start..end) }
    }
}

impl Memory for Array {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        drop(self.withheld.lock().unwrap());
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(MemoryError::Gone);
        }
        let range = Self::at(at, into.len())?;
        into.copy_from_slice(&self.bytes.lock().unwrap()[range]);
        Ok(())
    }

    fn write(&self, pieces: &[(u64, &[u8])]) -> Result<(), MemoryError> {
        for (at, bytes) in pieces {
            let range = Self::at(*at, bytes.len())?;
            self.bytes.lock().unwrap()[range].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn pairs(&self, places: &[u64], into: &mut Vec<Option<[u32; 2]>>) -> Result<(), MemoryError> {
        for place in places {
            let mut two = [0; 8];
            let read = self.read(*place, &mut two);
            let word = |at: usize| u32::from_be_bytes(two[at..at + 4].try_into().unwrap());
            into.push(read.is_ok().then(|| [word(0), word(4)]));
        }
        Ok(())
    }

    fn is_mapped(&self, at: u64, length: u64, _: bool) -> Result<bool, MemoryError> {
        Ok(usize::try_from(length).is_ok_and(|length| Self::at(at, length).is_ok()))
    }

    fn lockable(&self) -> u64 {
        self.lockable
    }
}
