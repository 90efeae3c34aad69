//! What a provider really does, tried with a message to oneself when the first device of a process
//! is made.
//!
//! Some providers take a look for a message for a receive (`shm` of libfabric 1.17); some show a
//! message again that was taken (`net` of 1.17), and have a descriptor that stays readable once
//! something has come, so that a thread would never sleep. Nothing in their attributes tells.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_os::sleep::sleep_until_readable;

use super::carrier::{Carrier, TagBits, Wire};
use super::endpoint::{Begun, Completion, Lane, LaneAddress, MemorySpan, OperationContext};
use super::objects::Endpoint;

/// How long a provider may take to connect to itself.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long a message to oneself may take once it was sent.
const ARRIVE_MAX: Duration = Duration::from_millis(500);

/// How often a thread tries to fall asleep, and how long it waits before the next time.
const SLEEP_TRIALS: usize = 20;
const SLEEP_DELAY: Duration = Duration::from_millis(1);

/// What was found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// A message that waits is found (`FI_PEEK`).
    pub(super) finds: bool,
    /// It can be taken, and isn't found again (`FI_CLAIM`).
    pub(super) takes: bool,
    /// A thread can sleep on the descriptor.
    pub(super) wakes: bool,
}

/// One message to oneself, and the memory that libfabric has for it.
struct Trial<'a> {
    endpoint: &'a Endpoint,
    /// Of a look, of another one, of the receive.
    contexts: Box<[OperationContext; 3]>,
    bytes: Box<[u8; 8]>,
    /// The message has this tag.
    tag: u64,
    is_under_way: bool,
}

/// Tries a provider, once a process. `oneself` is the address of its own endpoint, for which
/// nothing is posted.
///
/// `None`: a message to oneself doesn't arrive.
pub(super) fn attempt(
    provider: &str,
    endpoint: &Endpoint,
    oneself: sys::fi_addr_t,
    carrier: &Carrier,
) -> Option<Abilities> {
    static KNOWN: Mutex<Option<HashMap<String, Abilities>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(found) = known.get(provider) {
        return Some(*found);
    }
    let trial = Trial {
        endpoint,
        contexts: Box::new([
            OperationContext::new(0),
            OperationContext::new(1),
            OperationContext::new(2),
        ]),
        bytes: Box::new([0; 8]),
        tag: carrier.piece_tag(0),
        is_under_way: false,
    };
    let found = Abilities { wakes: falls_asleep(endpoint), ..trial.run(oneself)? };
    known.insert(provider.to_owned(), found);
    Some(found)
}

/// Whether the descriptor falls silent when nothing happens.
fn falls_asleep(endpoint: &Endpoint) -> bool {
    let Some(descriptor) = endpoint.descriptor() else { return false };
    (0..SLEEP_TRIALS).any(|_| {
        std::thread::sleep(SLEEP_DELAY);
        while !endpoint.read().is_empty() {}
        endpoint.arm() && matches!(sleep_until_readable(&[descriptor], Duration::ZERO), Ok(false))
    })
}

impl Trial<'_> {
    fn run(mut self, oneself: sys::fi_addr_t) -> Option<Abilities> {
        self.send(oneself)?;
        let mut found = Abilities { finds: self.look_until_found(), ..Abilities::default() };
        if !found.finds {
            // The look may have eaten the message.
            self.tag += 1;
            self.send(oneself)?;
            return self.receive(2).then_some(found);
        }
        let is_taken = self.look(1, true) == Some(0);
        if !is_taken {
            return self.receive(2).then_some(found);
        }
        // A message that was taken isn't found again, and is received all the same.
        found.takes = self.look(0, false) == Some(sys::FI_ENOMSG);
        self.receive(1).then_some(found)
    }

    fn bits(&self) -> TagBits {
        TagBits { tag: self.tag, ignored: 0 }
    }

    fn send(&self, oneself: sys::fi_addr_t) -> Option<()> {
        let begin = Instant::now();
        let wire = Wire { tag: self.tag, data: 0 };
        while self.endpoint.inject(LaneAddress::messages(oneself), &[7], wire) != Begun::Yes {
            let _ = self.endpoint.read();
            if begin.elapsed() > CONNECT_MAX {
                return None;
            }
        }
        Some(())
    }

    fn look_until_found(&mut self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < ARRIVE_MAX {
            match self.look(0, false) {
                Some(0) => return true,
                Some(sys::FI_ENOMSG | sys::FI_EAGAIN) => {}
                _ => return false,
            }
        }
        false
    }

    /// The error number of a look, once it is answered.
    fn look(&mut self, context: usize, takes: bool) -> Option<i32> {
        let from = sys::FI_ADDR_UNSPEC;
        let context = &self.contexts[context];
        // SAFETY: the contexts stay until the look has ended (`Drop`), and a message that was taken
        // is received with the same one.
        match unsafe { self.endpoint.look(from, self.bits(), takes, context) } {
            Begun::Yes => {}
            Begun::Again => {
                let _ = self.endpoint.read();
                return Some(sys::FI_EAGAIN);
            }
            Begun::Failed(_) => return None,
        }
        self.is_under_way = true;
        let answer = self.wait();
        if answer.is_none() {
            // It was taken for a receive. It must not stay posted.
            self.endpoint.cancel(Lane::Messages, &self.contexts[0]);
            self.wait();
        }
        answer.map(|completion| completion.errno)
    }

    /// Receives the message, taken with the second context or not at all.
    fn receive(&mut self, context: usize) -> bool {
        let memory = MemorySpan { start: self.bytes.as_mut_ptr(), length: self.bytes.len() };
        let from = sys::FI_ADDR_UNSPEC;
        let begin = Instant::now();
        loop {
            let with = &self.contexts[context];
            // SAFETY: memory and contexts stay until the receive has ended (`Drop`).
            let begun = unsafe {
                match context {
                    1 => self.endpoint.receive_claimed(from, memory, self.tag, with),
                    _ => self.endpoint.receive(
                        LaneAddress::messages(from),
                        memory,
                        self.bits(),
                        with,
                    ),
                }
            };
            match begun {
                Begun::Yes => break,
                Begun::Again if begin.elapsed() < ARRIVE_MAX => {
                    let _ = self.endpoint.read();
                }
                _ => return false,
            }
        }
        self.is_under_way = true;
        self.wait().is_some_and(|completion| completion.errno == 0 && completion.length == 1)
    }

    /// The next completion.
    fn wait(&mut self) -> Option<Completion> {
        let begin = Instant::now();
        while begin.elapsed() < ARRIVE_MAX {
            if let Some(first) = self.endpoint.read().iter().next() {
                self.is_under_way = false;
                return Some(first);
            }
        }
        None
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.is_under_way {
            // libfabric may still write to them.
            let contexts =
                [OperationContext::new(0), OperationContext::new(1), OperationContext::new(2)];
            std::mem::forget(std::mem::replace(&mut self.contexts, Box::new(contexts)));
            std::mem::forget(std::mem::replace(&mut self.bytes, Box::new([0; 8])));
        }
    }
}
