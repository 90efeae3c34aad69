//! An endpoint: a sender, a matcher, and the objects that it is bound to.

mod lists;
mod matcher;
mod mode;
mod sender;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use tagmatch_ofi_provider::{self as ofi, Bindings, Incoming, Injected, Memory, Outgoing};
use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};
use tagmatch_os::process;

use crate::chance::Chance;
use crate::effects::{Completion, Effects};
use crate::settings::{Mode, Settings};
use crate::telemetry::Telemetry;
use crate::transport::Transport;
use crate::wire::{EAGER_MAX, Name, Packet, Put};
use lists::{Receive, Wanted};
use matcher::{Claimed, Matcher};
use sender::{Send, Sender};

type Sinks<'a> = ofi::Sinks<'a, Name>;

/// Most bytes of a message that is copied at once: `FI_INJECT`.
pub(crate) const INJECT_MAX: usize = 192;
/// Most bytes of a message.
pub(crate) const MESSAGE_MAX: usize = u32::MAX as usize;
/// The bits that a tag can have.
pub(crate) const TAG_BITS: u64 = (1 << 48) - 1;
/// Packets that a round takes from the socket.
const PACKETS_MAX: usize = 64;

/// How many sends and receives an endpoint has at a time, as the program chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) sends_max: usize,
    pub(crate) receives_max: usize,
}

/// An endpoint.
pub(crate) struct Endpoint {
    bound: Bindings,
    settings: Arc<Settings>,
    transport: Transport,
    sender: Sender,
    matcher: Matcher,
    chance: Chance,
}

impl Endpoint {
    /// An endpoint with this number in its process.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        mode: Mode,
        number: u32,
        bound: Bindings,
        limits: Limits,
    ) -> std::io::Result<Self> {
        let name = Name::own(number);
        let transport = Transport::new(&settings.nic, name)?;
        // Fails where the kernel has no Yama, whose rule it changes.
        let _ = process::allow_readers();
        let telemetry = Telemetry::new(settings, number);
        telemetry.create()?;
        let [receiving, sending] = [2 * number, 2 * number + 1].map(|n| Chance::new(settings, n));
        let sender = Sender::new(name, limits.sends_max, settings.match_ids, settings.death);
        let matcher =
            Matcher::new(settings.clone(), mode, limits.receives_max, telemetry, receiving);
        let settings = settings.clone();
        let chance = sending;
        Ok(Endpoint { bound, settings, transport, sender, matcher, chance })
    }

    fn transmit(
        &mut self,
        sinks: &mut Sinks<'_>,
        outgoing: &Outgoing,
        is_inject: bool,
    ) -> Result<()> {
        let Outgoing { tag, data, .. } = *outgoing;
        // SAFETY: the program keeps the memory of a send until its completion.
        let memory = unsafe { only(outgoing.pieces, false)? };
        let to = self.name(sinks, outgoing.destination)?;
        let flags = outgoing.flags.unwrap_or(self.bound.opened.send_flags);
        let is_copied = is_inject || flags & sys::FI_INJECT != 0;
        let most = if is_copied { INJECT_MAX } else { MESSAGE_MAX };
        if memory.len() > most {
            return Err(Errno::TOO_LONG);
        }
        if self.chance.says_again() {
            return Err(Errno::AGAIN);
        }
        let is_rendezvous = memory.len() > EAGER_MAX;
        let waits = is_rendezvous || (flags & sys::FI_MATCH_COMPLETE != 0 && !is_inject);
        let id = match self.sender.admit(to, waits) {
            Ok(id) => id,
            Err(errno) => {
                ofi::ProviderEndpoint::progress(self, sinks);
                return Err(errno);
            }
        };
        let (payload, address) = if is_rendezvous {
            (Vec::new(), memory.start() as u64)
        } else {
            // SAFETY: as above.
            (unsafe { memory.bytes() }.to_vec(), 0)
        };
        let source = self.sender.name;
        let length = memory.len();
        let put = Put { source, tag, data, length, id, address, payload };
        let tells = !is_inject && self.bound.send_tells(flags);
        let context = outgoing.context as usize;
        self.sender.push(to, &Packet::Put(put), Send { context, tells, id });
        self.carry_out(sinks, Effects::default());
        Ok(())
    }

    fn name(&self, sinks: &Sinks<'_>, address: u64) -> Result<Name> {
        if !self.bound.is_enabled() {
            return Err(Errno::BAD_STATE);
        }
        self.bound.vector_in(sinks.vectors()).ok_or(Errno::NO_AV)?.address(address)
    }

    fn with_matcher(
        &mut self,
        sinks: &mut Sinks<'_>,
        incoming: &Incoming,
        memory: Memory,
        call: impl FnOnce(&mut Matcher, Receive, Wanted, &mut Effects) -> Result<()>,
    ) -> Result<()> {
        let pattern = incoming.pattern;
        if !self.bound.is_enabled() {
            return Err(Errno::BAD_STATE);
        }
        let source = match pattern.source {
            sys::FI_ADDR_UNSPEC => None,
            _ if !self.bound.opened.directed => None,
            address => Some(self.name(sinks, address)?),
        };
        let flags = incoming.flags.unwrap_or(self.bound.opened.receive_flags);
        let context = incoming.context as usize;
        let receive = Receive { context, memory, tells: self.bound.receive_tells(flags) };
        let mut effects = Effects::default();
        let wanted = Wanted { tag: pattern.tag, ignore: !pattern.mask, source };
        let result = call(&mut self.matcher, receive, wanted, &mut effects);
        self.carry_out(sinks, effects);
        if result == Err(Errno::AGAIN) {
            // As cxip_recv_req_init does.
            ofi::ProviderEndpoint::progress(self, sinks);
        }
        result
    }

    fn carry_out(&mut self, sinks: &mut Sinks<'_>, mut effects: Effects) {
        for (peer, packet) in &effects.packets {
            self.sender.answer(*peer, packet);
        }
        self.sender.flush(&self.transport, &mut effects.completions);
        for Completion { mut entry, source } in effects.completions {
            let source = source.filter(|_| self.bound.opened.source);
            let source = source.zip(self.bound.vector_in(sinks.vectors()));
            entry.source = source.map_or(sys::FI_ADDR_NOTAVAIL, |(name, all)| all.number(&name));
            self.bound.tell(sinks, entry, true);
        }
    }
}

impl ofi::ProviderEndpoint<Name> for Endpoint {
    fn bound(&self) -> &Bindings {
        &self.bound
    }

    fn bound_mut(&mut self) -> &mut Bindings {
        &mut self.bound
    }

    fn address(&self) -> Name {
        self.sender.name
    }

    fn event_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.settings.wakes.then(|| self.transport.as_fd())
    }

    /// Whether nothing goes on without a packet.
    fn may_sleep(&self) -> bool {
        !self.sender.has_unsent() && !self.matcher.is_busy()
    }

    /// One round.
    fn progress(&mut self, sinks: &mut Sinks<'_>) {
        let mut effects = Effects::default();
        for _ in 0..PACKETS_MAX {
            let Some(bytes) = self.transport.receive() else { break };
            match Packet::parse(bytes) {
                Some((_, Packet::Put(put))) => self.matcher.arrive(put, &mut effects),
                Some((peer, Packet::Matched { id })) => {
                    self.sender.matched(peer, id, &mut effects.completions);
                }
                Some((peer, Packet::Pause)) => self.sender.set_paused(peer, true),
                Some((peer, Packet::Resume)) => self.sender.set_paused(peer, false),
                None => {}
            }
        }
        for claimed in self.matcher.next_round(&mut effects) {
            write_name(claimed);
        }
        self.carry_out(sinks, effects);
    }

    /// Waits until all sends have ended, for a limited time, as cxi does (`txc_cleanup`). What is
    /// left ends without a completion.
    fn may_close(&mut self, sinks: &mut Sinks<'_>, waited: Duration) -> bool {
        let limit = Duration::from_millis(self.settings.close_ms.into());
        let is_over = !self.sender.is_busy() || waited >= limit;
        if !is_over {
            self.progress(sinks);
        }
        is_over
    }

    /// # Safety
    /// As the trait says.
    unsafe fn send(&mut self, sinks: &mut Sinks<'_>, message: &Outgoing) -> Result<()> {
        self.transmit(sinks, message, false)
    }

    /// # Safety
    /// As the trait says.
    unsafe fn inject(&mut self, sinks: &mut Sinks<'_>, message: Injected) -> Result<()> {
        let Injected { start, length, destination, tag, data } = message;
        let pieces = ofi::Pieces::One(start, length);
        let kind = sys::FI_TAGGED;
        let context = std::ptr::null_mut();
        let outgoing = Outgoing { pieces, destination, tag, data, context, kind, flags: None };
        self.transmit(sinks, &outgoing, true)
    }

    /// # Safety
    /// As the trait says.
    unsafe fn post(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        // SAFETY: the caller's promise.
        let memory = unsafe { only(incoming.pieces, true)? };
        self.with_matcher(sinks, incoming, memory, Matcher::post)
    }

    fn peek(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        let claims = incoming.flags.is_some_and(|flags| flags & sys::FI_CLAIM != 0);
        // SAFETY: there are no bytes.
        let memory = unsafe { Memory::new(std::ptr::null(), 0, true)? };
        self.with_matcher(sinks, incoming, memory, |matcher, receive, wanted, _| {
            matcher.search(wanted, receive.context, claims)
        })
    }

    /// # Safety
    /// As the trait says.
    unsafe fn claim(&mut self, sinks: &mut Sinks<'_>, incoming: &Incoming) -> Result<()> {
        // SAFETY: the caller's promise; `write_name` has left a name in the `fi_context`.
        let (memory, context) = unsafe {
            (only(incoming.pieces, true)?, incoming.context.cast::<sys::fi_context>().as_ref())
        };
        let name = context.ok_or(Errno::INVALID)?.internal[0] as u64;
        self.with_matcher(sinks, incoming, memory, |matcher, receive, _, effects| {
            matcher.receive_claimed(receive, name, effects)
        })
    }

    /// `FI_ECANCELED` comes later, or the completion of a message that was faster.
    fn cancel(&mut self, _sinks: &mut Sinks<'_>, context: usize) -> Result<()> {
        self.matcher.cancel(context)
    }
}

/// The memory of a call, which has one part or none.
///
/// # Safety
/// As for [`ofi::Pieces::only`].
unsafe fn only(pieces: ofi::Pieces, writable: bool) -> Result<Memory> {
    // SAFETY: the caller's promise.
    unsafe { pieces.only::<1>(writable)?.ok_or(Errno::INVALID) }
}

/// Leaves the name of a claimed message in the program's `fi_context`, where cxi leaves a pointer.
fn write_name(Claimed { context, name }: Claimed) {
    let context = std::ptr::with_exposed_provenance_mut::<sys::fi_context>(context);
    let Ok(name) = usize::try_from(name) else { return };
    // SAFETY: fi_tagged(3): a claiming search has a `fi_context`, which the program keeps until it
    // has received the message.
    unsafe { (*context).internal[0] = std::ptr::without_provenance_mut(name) };
}
