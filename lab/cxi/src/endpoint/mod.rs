//! An endpoint: a sender, a matcher, and the objects that it is bound to.

mod lists;
mod matcher;
mod mode;
mod sender;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tagmatch_ofi_sys as sys;
use tagmatch_ofi_sys::calls::{Errno, Result};
use tagmatch_os::process;

use crate::chance::Chance;
use crate::effects::{Completion, Effects};
use crate::memory::Memory;
use crate::queue::{Entry, Progress, Queue};
use crate::settings::{Mode, Settings};
use crate::telemetry::Telemetry;
use crate::transport::Transport;
use crate::vector::Vector;
use crate::wire::{EAGER_MAX, Name, Packet, Put};
pub(crate) use lists::{Receive, Wanted};
pub(crate) use matcher::Claimed;
use matcher::Matcher;
use sender::{Send, Sender};

/// Most bytes of a message that is copied at once: `FI_INJECT`.
pub(crate) const INJECT_MAX: usize = 192;
/// Most bytes of a message.
pub(crate) const MESSAGE_MAX: usize = u32::MAX as usize;
/// The bits that a tag can have.
pub(crate) const TAG_BITS: u64 = (1 << 48) - 1;
/// Packets that a round takes from the socket.
const PACKETS_MAX: usize = 64;

/// The settings of an endpoint, which the program chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) sends_max: usize,
    pub(crate) receives_max: usize,
    /// The flags of sends and receives that are given none.
    pub(crate) send_flags: u64,
    pub(crate) receive_flags: u64,
    /// `FI_DIRECTED_RECV`: receives may name a source.
    pub(crate) is_directed: bool,
    /// `FI_SOURCE`: completions tell the source.
    pub(crate) tells_source: bool,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) memory: Memory,
    pub(crate) to: u64,
    pub(crate) tag: u64,
    pub(crate) data: Option<u64>,
    pub(crate) context: usize,
    /// `None`: the endpoint's.
    pub(crate) flags: Option<u64>,
    /// `fi_tinject`: there is no completion.
    pub(crate) is_inject: bool,
}

/// A receive or a search, as a program asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub(crate) memory: Memory,
    pub(crate) from: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: usize,
    /// `None`: the endpoint's.
    pub(crate) flags: Option<u64>,
}

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) name: Name,
    state: Mutex<State>,
}

struct State {
    options: Options,
    settings: Arc<Settings>,
    transport: Transport,
    sender: Sender,
    matcher: Matcher,
    chance: Chance,
    vector: Option<Arc<Vector>>,
    /// With whether successes of operations without `FI_COMPLETION` stay untold.
    send_queue: Option<(Arc<Queue>, bool)>,
    receive_queue: Option<(Arc<Queue>, bool)>,
    is_enabled: bool,
}

impl Endpoint {
    /// An endpoint with this number in its process.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        mode: Mode,
        number: u32,
        options: Options,
    ) -> std::io::Result<Self> {
        let name = Name::own(number);
        let transport = Transport::new(&settings.nic, name)?;
        // Fails where the kernel has no Yama, whose rule it changes.
        let _ = process::allow_readers();
        let telemetry = Telemetry::new(settings, number);
        telemetry.create()?;
        let [receiving, sending] = [2 * number, 2 * number + 1].map(|n| Chance::new(settings, n));
        let sender = Sender::new(name, options.sends_max, settings.match_ids, settings.death);
        let matcher =
            Matcher::new(settings.clone(), mode, options.receives_max, telemetry, receiving);
        let state = State {
            options,
            settings: settings.clone(),
            transport,
            sender,
            matcher,
            chance: sending,
            vector: None,
            send_queue: None,
            receive_queue: None,
            is_enabled: false,
        };
        Ok(Endpoint { name, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `fi_ep_bind` to an address vector.
    pub(crate) fn bind_vector(&self, vector: Arc<Vector>) {
        self.state().vector = Some(vector);
    }

    /// `fi_ep_bind` to a completion queue.
    pub(crate) fn bind_queue(self: &Arc<Self>, queue: &Arc<Queue>, flags: u64) -> Result<()> {
        let mut state = self.state();
        let bound = (queue.clone(), flags & sys::FI_SELECTIVE_COMPLETION != 0);
        if flags & sys::FI_TRANSMIT != 0 {
            state.send_queue = Some(bound.clone());
        }
        if flags & sys::FI_RECV != 0 {
            state.receive_queue = Some(bound);
        }
        let socket = Some(state.transport.as_fd()).filter(|_| state.settings.wakes);
        let endpoint: Arc<dyn Progress> = self.clone();
        queue.bind(Arc::downgrade(&endpoint), socket)
    }

    /// `fi_enable`.
    pub(crate) fn enable(&self) -> Result<()> {
        let mut state = self.state();
        if state.vector.is_none() {
            return Err(Errno::NO_AV);
        }
        if state.send_queue.is_none() || state.receive_queue.is_none() {
            return Err(Errno::NO_CQ);
        }
        state.is_enabled = true;
        Ok(())
    }

    /// Sends a message.
    pub(crate) fn send(&self, outgoing: Outgoing) -> Result<()> {
        self.state().send(outgoing)
    }

    /// Posts a receive.
    pub(crate) fn receive(&self, incoming: Incoming) -> Result<()> {
        self.state().with_matcher(incoming, |matcher, receive, wanted, effects| {
            matcher.post(receive, wanted, effects)
        })
    }

    /// `FI_PEEK`, which may claim the message that is found.
    pub(crate) fn peek(&self, incoming: Incoming, claims: bool) -> Result<()> {
        self.state().with_matcher(incoming, |matcher, receive, wanted, _| {
            matcher.search(wanted, receive.context, claims)
        })
    }

    /// `FI_CLAIM`: receives a message that was claimed, by the name that its search has left.
    pub(crate) fn receive_claimed(&self, incoming: Incoming, name: u64) -> Result<()> {
        self.state().with_matcher(incoming, |matcher, receive, _, effects| {
            matcher.receive_claimed(receive, name, effects)
        })
    }

    /// `fi_cancel`.
    pub(crate) fn cancel(&self, context: usize) -> Result<()> {
        self.state().matcher.cancel(context)
    }

    /// Blocks until all sends have ended, for a limited time, as cxi does (`txc_cleanup`).
    pub(crate) fn drain(&self) {
        let limit = Duration::from_millis(self.state().settings.close_ms.into());
        let began = Instant::now();
        while self.state().sender.is_busy() && began.elapsed() < limit {
            self.progress();
            std::thread::yield_now();
        }
    }
}

impl Progress for Endpoint {
    fn progress(&self) {
        self.state().progress();
    }

    fn is_busy(&self) -> bool {
        let state = self.state();
        state.sender.has_unsent() || state.matcher.is_busy()
    }
}

impl State {
    fn send(&mut self, outgoing: Outgoing) -> Result<()> {
        let Outgoing { memory, tag, data, context, is_inject, .. } = outgoing;
        let to = self.open_vector()?.name(outgoing.to)?;
        let flags = outgoing.flags.unwrap_or(self.options.send_flags);
        let is_copied = is_inject || flags & sys::FI_INJECT != 0;
        let most = if is_copied { INJECT_MAX } else { MESSAGE_MAX };
        if memory.length() > most {
            return Err(Errno::TOO_LONG);
        }
        if tag & !TAG_BITS != 0 {
            return Err(Errno::INVALID);
        }
        if self.chance.says_again() {
            return Err(Errno::AGAIN);
        }
        let is_rendezvous = memory.length() > EAGER_MAX;
        let waits = is_rendezvous || (flags & sys::FI_MATCH_COMPLETE != 0 && !is_inject);
        let id = match self.sender.admit(to, waits) {
            Ok(id) => id,
            Err(errno) => {
                self.progress();
                return Err(errno);
            }
        };
        let (payload, address) = match is_rendezvous {
            true => (Vec::new(), memory.start() as u64),
            false => (memory.bytes(), 0),
        };
        let (source, length) = (self.sender.name, memory.length());
        let put = Put { source, tag, data, length, id, address, payload };
        let tells = !is_inject && tells(self.send_queue.as_ref(), flags);
        self.sender.push(to, &Packet::Put(put), Send { context, tells, id });
        let mut effects = Effects::default();
        self.sender.flush(&self.transport, &mut effects.completions);
        self.tell(&effects.completions);
        Ok(())
    }

    fn open_vector(&self) -> Result<&Vector> {
        if !self.is_enabled {
            return Err(Errno::BAD_STATE);
        }
        self.vector.as_deref().ok_or(Errno::NO_AV)
    }

    fn with_matcher(
        &mut self,
        incoming: Incoming,
        call: impl FnOnce(&mut Matcher, Receive, Wanted, &mut Effects) -> Result<()>,
    ) -> Result<()> {
        let Incoming { memory, from, tag, ignore, context, flags } = incoming;
        let vector = self.open_vector()?;
        if (tag | ignore) & !TAG_BITS != 0 {
            return Err(Errno::INVALID);
        }
        let source = match from {
            sys::FI_ADDR_UNSPEC => None,
            _ if !self.options.is_directed => None,
            address => Some(vector.name(address)?),
        };
        let flags = flags.unwrap_or(self.options.receive_flags);
        let receive = Receive { context, memory, tells: tells(self.receive_queue.as_ref(), flags) };
        let mut effects = Effects::default();
        let result = call(&mut self.matcher, receive, Wanted { tag, ignore, source }, &mut effects);
        self.carry_out(effects);
        if result == Err(Errno::AGAIN) {
            // As cxip_recv_req_init does.
            self.progress();
        }
        result
    }

    /// One round of progress.
    fn progress(&mut self) {
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
        self.carry_out(effects);
    }

    fn carry_out(&mut self, mut effects: Effects) {
        for (peer, packet) in &effects.packets {
            self.sender.answer(*peer, packet);
        }
        self.sender.flush(&self.transport, &mut effects.completions);
        self.tell(&effects.completions);
    }

    fn tell(&self, completions: &[Completion]) {
        for completion in completions {
            let is_send = completion.flags & sys::FI_SEND != 0;
            let queue = if is_send { &self.send_queue } else { &self.receive_queue };
            let source = completion.source.filter(|_| self.options.tells_source);
            let source = source.zip(self.vector.as_ref());
            let source = source.map_or(sys::FI_ADDR_NOTAVAIL, |(name, all)| all.address(name));
            if let Some((queue, _)) = queue {
                queue.push(Entry { completion: *completion, source });
            }
        }
    }
}

/// Whether the success of an operation with these flags has a completion.
fn tells(queue: Option<&(Arc<Queue>, bool)>, flags: u64) -> bool {
    queue.is_some_and(|(_, is_selective)| !is_selective || flags & sys::FI_COMPLETION != 0)
}

/// Leaves the name of a claimed message in the program's `fi_context`, where cxi leaves a pointer.
fn write_name(Claimed { context, name }: Claimed) {
    let context = std::ptr::with_exposed_provenance_mut::<sys::fi_context>(context);
    let Ok(name) = usize::try_from(name) else { return };
    // SAFETY: fi_tagged(3): a claiming search has a `fi_context`, which the program keeps until it
    // has received the message.
    unsafe { (*context).internal[0] = std::ptr::without_provenance_mut(name) };
}
