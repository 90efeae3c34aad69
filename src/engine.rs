//! The engines that a worker can run on, chosen when it is made: one that matches, on a device that
//! carries bytes, or one whose device does both.

use std::os::fd::BorrowedFd;

use tagmatch_device::matching::MatchingDevice;
use tagmatch_device::{
    Address, Buffer, Device, DeviceError, EventDescriptor, PeerId, RawMemory, ReadMode, Registered,
    TagMatching,
};
#[cfg(feature = "ucx")]
use tagmatch_fallback::Delegated;
use tagmatch_fallback::{
    Completion, Counters, EndList, Ended, Engine, Fault, Flushing, ListObserver, MessageId,
    PeerFault, Posted, RequestId, SendMode, Started, Status, Unsent,
};
use tagmatch_soft::{Pattern, Tag};
#[cfg(feature = "ucx")]
use tagmatch_ucx::{Ucx, UcxConfig};

use crate::config::{Config, DeviceConfig, HwTags};
use crate::device::WorkerDevice;

/// A worker's engine.
#[allow(clippy::large_enum_variant, reason = "stored in place, since every message uses it")]
// With `repr(u8)`, reading the variant takes one instruction; as a niche of a field it would take
// three.
#[repr(u8)]
pub(crate) enum WorkerEngine {
    /// Matches, in software or by a NIC's list.
    Matching(Engine<WorkerDevice>),
    /// Leaves matching to UCX.
    #[cfg(feature = "ucx")]
    Ucx(Box<Delegated<Ucx>>),
}

impl WorkerEngine {
    pub(crate) fn new(config: &Config, seed: u64) -> Result<Self, DeviceError> {
        config.check()?;
        Ok(match &config.device {
            DeviceConfig::Shm(shm) => {
                let device = WorkerDevice::on_shm(shm, &config.hw_tags)?;
                WorkerEngine::Matching(Engine::new(device, &config.engine(seed))?)
            }
            DeviceConfig::Auto(auto) => {
                let device = WorkerDevice::on_auto(auto, config)?;
                WorkerEngine::Matching(Engine::new(device, &config.engine(seed))?)
            }
            #[cfg(feature = "verbs")]
            DeviceConfig::Verbs(verbs) => {
                let device = WorkerDevice::on_verbs(verbs, config)?;
                WorkerEngine::Matching(Engine::new(device, &config.engine(seed))?)
            }
            #[cfg(feature = "tcp")]
            DeviceConfig::Tcp(tcp) => {
                let device = WorkerDevice::on_tcp(tcp, config)?;
                WorkerEngine::Matching(Engine::new(device, &config.engine(seed))?)
            }
            #[cfg(feature = "ucx")]
            DeviceConfig::Ucx(ucx) => Self::on_ucx(ucx, config)?,
        })
    }

    // Not inlined: it needs much of the stack.
    #[cfg(feature = "ucx")]
    #[inline(never)]
    fn on_ucx(ucx: &UcxConfig, config: &Config) -> Result<Self, DeviceError> {
        let hw_tags = match config.hw_tags {
            HwTags::Off => TagMatching::Off,
            HwTags::Auto => TagMatching::Auto,
            #[cfg(any(feature = "emu", feature = "model"))]
            _ => {
                let (what, why) = (
                    "a NIC in software",
                    "UCX matches by itself; HwTags::Auto lets it use its NIC",
                );
                return Err(DeviceError::Unsupported { what, why });
            }
        };
        let source = config.layout.source_mask().0;
        let used = source | config.layout.context_mask().0 | config.layout.tag_mask().0;
        let secret = config.secret.clone().or_else(|| ucx.secret.clone());
        let ucx = Ucx::new(UcxConfig { secret, hw_tags, used, source, ..ucx.clone() })?;
        Ok(WorkerEngine::Ucx(Box::new(Delegated::new(ucx))))
    }
}

/// One call on either engine; or a call on each, the matching one first.
macro_rules! on {
    ($engine:expr, $each:ident => $call:expr) => {
        on!($engine, $each => $call, $each => out_of_line(move || $call))
    };
    ($engine:expr, $matching:pat => $call:expr, $ucx:pat => $other:expr) => {
        match $engine {
            WorkerEngine::Matching($matching) => $call,
            #[cfg(feature = "ucx")]
            WorkerEngine::Ucx($ucx) => $other,
        }
    };
}

/// Keeps calls of UCX out of the code of the short way of a message.
#[cfg(feature = "ucx")]
#[cold]
#[inline(never)]
fn out_of_line<R>(call: impl FnOnce() -> R) -> R {
    call()
}

/// The calls that both engines have; [`Engine`](tagmatch_fallback::Engine) documents them.
impl WorkerEngine {
    pub(crate) fn address(&self) -> Address {
        on!(self, engine => engine.device().address())
    }

    pub(crate) fn event_descriptor(&self) -> BorrowedFd<'_> {
        on!(self, engine => engine.device().event_descriptor())
    }

    pub(crate) fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        on!(self, engine => engine.connect(address))
    }

    pub(crate) fn peer_address(&self, peer: PeerId) -> Option<Address> {
        on!(self, engine => engine.device().peer_address(peer))
    }

    pub(crate) fn peer_fault(&self, peer: PeerId) -> Option<PeerFault> {
        on!(self, engine => engine.peer_fault(peer))
    }

    pub(crate) fn read_mode(&self, peer: PeerId) -> ReadMode {
        on!(self, engine => engine.read_mode(peer), _ => ReadMode::ByDevice)
    }

    pub(crate) fn allocate(&mut self, length: usize) -> Buffer {
        let buffer: Option<Buffer> =
            on!(self, engine => engine.device_mut().allocate(length), _ => None);
        buffer.unwrap_or_else(|| Buffer::zeroed(length))
    }

    pub(crate) fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        on!(self, engine => engine.device_mut().register(memory))
    }

    pub(crate) fn transports(&self, peer: PeerId) -> Vec<String> {
        on!(self, _ => Vec::new(), engine => engine.device().transports(peer))
    }

    pub(crate) fn disconnect(&mut self, peer: PeerId) {
        on!(self, engine => engine.disconnect(peer));
    }

    pub(crate) fn close(&mut self) {
        on!(self, engine => engine.close());
    }

    pub(crate) fn has_unsent(&mut self) -> bool {
        on!(self, engine => engine.has_unsent())
    }

    pub(crate) fn begin_flush(&mut self) -> Flushing {
        on!(self, engine => engine.begin_flush())
    }

    pub(crate) fn is_flushed(&mut self, flushing: &mut Flushing) -> bool {
        on!(self, engine => engine.is_flushed(flushing))
    }

    pub(crate) fn unsent(&mut self) -> Vec<Unsent> {
        on!(self, engine => engine.unsent())
    }

    pub(crate) fn take_lost(&mut self) -> Vec<Unsent> {
        on!(self, engine => engine.take_lost())
    }

    pub(crate) fn credit_waits(&self) -> Vec<(PeerId, u64)> {
        on!(self, engine => engine.credit_waits(), _ => Vec::new())
    }

    pub(crate) fn counters(&self) -> Counters {
        on!(self, engine => engine.counters())
    }

    /// Sends the message in `buffer`. `None`: the send is complete, and the buffer still where it
    /// was. Otherwise the buffer has gone into the request, or into the refusal.
    #[inline(never)]
    pub(crate) fn send(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: &mut Buffer,
        mode: SendMode,
    ) -> Option<Posted> {
        let is_sent = on!(
            self,
            engine => {
                mode == SendMode::Standard && engine.send_at_once(peer, tag, immediate, buffer)
            },
            _ => false
        );
        if is_sent {
            return None;
        }
        self.send_queued(peer, tag, immediate, buffer, mode)
    }

    #[cold]
    #[inline(never)]
    fn send_queued(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        buffer: &mut Buffer,
        mode: SendMode,
    ) -> Option<Posted> {
        let payload = std::mem::take(buffer);
        let started = on!(
            self,
            engine => engine.send_queued(peer, tag, immediate, payload, mode),
            engine => engine.send(peer, tag, immediate, payload, mode)
        );
        match started {
            Started::Sent(payload) => {
                *buffer = payload;
                None
            }
            Started::Pending(request) => Some(Ok(request)),
            Started::Refused(refused) => Some(Err(refused)),
        }
    }

    /// Sends a copy of `payload`. The fault is in a box, so that the result fits a register.
    #[inline(never)]
    pub(crate) fn inject(
        &mut self,
        peer: PeerId,
        tag: Tag,
        payload: &[u8],
    ) -> Result<(), Box<Fault>> {
        let sent: Result<bool, Fault> = on!(
            self,
            engine => {
                if engine.inject_at_once(peer, tag, None, payload) {
                    return Ok(());
                }
                engine.inject_queued(peer, tag, None, payload, u64::MAX)
            },
            engine => out_of_line(|| engine.inject(peer, tag, None, payload, u64::MAX))
        );
        sent.map(drop).map_err(Box::new)
    }

    /// As [`WorkerEngine::inject`]. `Ok(false)`: it was not taken, since the copies that wait take
    /// `copies_max` bytes.
    #[inline(never)]
    pub(crate) fn inject_with(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
        copies_max: u64,
    ) -> Result<bool, Box<Fault>> {
        let sent: Result<bool, Fault> = on!(
            self,
            engine => {
                if engine.inject_at_once(peer, tag, immediate, payload) {
                    return Ok(true);
                }
                engine.inject_queued(peer, tag, immediate, payload, copies_max)
            },
            engine => out_of_line(|| engine.inject(peer, tag, immediate, payload, copies_max))
        );
        sent.map_err(Box::new)
    }

    #[inline(always)]
    pub(crate) fn inject_at_once(
        &mut self,
        peer: PeerId,
        tag: Tag,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> bool {
        on!(self, engine => engine.inject_at_once(peer, tag, immediate, payload), _engine => false)
    }

    #[inline(always)]
    pub(crate) fn receive(
        &mut self,
        pattern: &Pattern,
        buffer: Buffer,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted {
        on!(self, engine => engine.receive_with(pattern, buffer, is_sole, context), engine => {
            let pattern = *pattern;
            out_of_line(move || {
                let request = engine.receive(&pattern, buffer)?;
                context.into_iter().for_each(|context| engine.requests_mut().queue(request, context));
                Ok(request)
            })
        })
    }

    pub(crate) fn source_fault(&self, pattern: &Pattern) -> Option<Fault> {
        on!(self, engine => engine.source_fault(pattern))
    }

    /// # Errors
    /// No message that the device carries will ever match.
    pub(crate) fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>, Fault> {
        on!(self, engine => Ok(engine.probe(pattern)), engine => engine.probe(pattern))
    }

    /// As [`WorkerEngine::probe`].
    pub(crate) fn matched_probe(
        &mut self,
        pattern: &Pattern,
    ) -> Result<Option<(MessageId, Status)>, Fault> {
        on!(self, engine => Ok(engine.matched_probe(pattern)), engine => engine.matched_probe(pattern))
    }

    pub(crate) fn receive_message(&mut self, message: MessageId, buffer: Buffer) -> Posted {
        on!(self, engine => engine.receive_message(message, buffer))
    }

    pub(crate) fn discard_message(&mut self, message: MessageId) -> bool {
        on!(self, engine => engine.discard_message(message))
    }

    #[inline]
    pub(crate) fn progress(&mut self) -> usize {
        on!(self, engine => engine.progress())
    }

    #[inline(always)]
    pub(crate) fn progress_until(&mut self, request: RequestId) -> (usize, bool) {
        on!(self, engine => engine.progress_until(request))
    }

    #[inline]
    pub(crate) fn take(&mut self, request: RequestId) -> Option<Completion> {
        on!(self, engine => engine.requests_mut().take(request))
    }

    #[inline(always)]
    pub(crate) fn ended(&mut self, request: RequestId) -> Option<Ended<'_>> {
        on!(self, engine => engine.requests_mut().ended(request))
    }

    #[inline(always)]
    pub(crate) fn is_done(&self, request: RequestId) -> bool {
        on!(self, engine => engine.requests().is_over(request))
    }

    pub(crate) fn exists(&self, request: RequestId) -> bool {
        on!(self, engine => engine.requests().exists(request))
    }

    pub(crate) fn cancel(&mut self, request: RequestId) {
        on!(self, engine => engine.cancel(request));
    }

    pub(crate) fn detach(&mut self, request: RequestId) {
        on!(self, engine => engine.detach(request));
    }

    pub(crate) fn watch(&mut self, request: RequestId) -> bool {
        on!(self, engine => engine.requests_mut().watch(request))
    }

    #[inline(always)]
    pub(crate) fn queue(&mut self, request: RequestId, context: u64) {
        on!(
            self,
            engine => engine.requests_mut().queue(request, context),
            engine => engine.requests_mut().queue(request, context)
        );
    }

    pub(crate) fn is_queued(&self, request: RequestId) -> bool {
        on!(self, engine => engine.requests().is_queued(request))
    }

    #[inline]
    pub(crate) fn take_ends(&mut self, ends: &mut impl EndList) -> usize {
        on!(self, engine => engine.take_ends(ends))
    }

    pub(crate) fn take_waiting_ends(&mut self, ends: &mut impl EndList) {
        on!(self, engine => engine.requests_mut().take_ends(ends));
    }

    #[inline(always)]
    pub(crate) fn has_ends(&self) -> bool {
        on!(self, engine => engine.requests().has_ends())
    }

    pub(crate) fn watch_ends(&mut self) -> bool {
        on!(self, engine => engine.requests_mut().watch_ends())
    }

    pub(crate) fn tell_peers(&mut self) {
        on!(self, engine => engine.requests_mut().tell_peers());
    }

    /// `false`: the device matches by itself.
    pub(crate) fn observe(&mut self, observer: Box<dyn ListObserver>) -> bool {
        on!(
            self,
            engine => {
                engine.observe(observer);
                true
            },
            _ => false
        )
    }

    pub(crate) fn take_woken(&mut self) -> Vec<RequestId> {
        on!(self, engine => engine.requests_mut().take_woken())
    }

    #[inline(always)]
    pub(crate) fn has_woken(&self) -> bool {
        on!(self, engine => engine.requests().has_woken())
    }

    pub(crate) fn arm(&mut self) -> bool {
        on!(self, engine => engine.arm())
    }

    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        on!(self, engine => engine.has_work())
    }

    pub(crate) fn disarm(&mut self) {
        on!(self, engine => engine.disarm());
    }
}

#[cfg(all(test, not(loom), feature = "ucx", feature = "model", feature = "emu"))]
mod tests {
    use tagmatch_model::ModelConfig;

    use super::*;

    #[test]
    fn no_nic_in_software_gets_between_ucx_and_its_network() {
        for hw_tags in [HwTags::Emu, HwTags::Model(ModelConfig::default())] {
            let device = DeviceConfig::Ucx(UcxConfig::default());
            let config = Config { device, hw_tags, ..Config::default() };
            let refused = WorkerEngine::new(&config, 1).map(drop);
            assert!(matches!(refused, Err(DeviceError::Unsupported { .. })), "{refused:?}");
        }
    }
}
