//! The engines that a worker can run on, chosen when it is made: one that matches, on a device that
//! carries bytes, or one whose device does both.

use std::os::fd::BorrowedFd;

use tagmatch_device::matching::MatchAndSleep;
use tagmatch_device::{Buffer, BufferParts, DeviceError, EventDescriptor, PeerId};
use tagmatch_fallback::{
    Delegated, EndList, Engine, Fault, MatchEngine, Posted, RequestId, Requests, Send, SendMode,
    WaitedEnd,
};
#[cfg(feature = "ofi")]
use tagmatch_ofi::{Ofi, OfiConfig};
use tagmatch_soft::{Pattern, Tag};
#[cfg(feature = "ucx")]
use tagmatch_ucx::{Ucx, UcxConfig};

use crate::config::{Config, DeviceConfig};
use crate::device::WorkerDevice;

/// A worker's engine.
#[allow(clippy::large_enum_variant, reason = "stored in place, since every message uses it")]
// With `repr(u8)`, reading the variant takes one instruction; as a niche of a field it would take
// three.
#[repr(u8)]
pub(crate) enum WorkerEngine {
    /// Matches, in software or by a NIC's list.
    Matching(Engine<WorkerDevice>),
    /// Leaves matching to its device.
    #[cfg_attr(
        not(any(feature = "ofi", feature = "ucx")),
        allow(dead_code, reason = "no device matches by itself")
    )]
    Delegated(Box<Delegated<dyn MatchAndSleep + std::marker::Send>>),
}

impl WorkerEngine {
    pub(crate) fn new(config: &Config, seed: u64) -> Result<Self, DeviceError> {
        config.check()?;
        let device = match &config.device {
            DeviceConfig::Shm(shm) => WorkerDevice::on_shm(shm, &config.hw_tags)?,
            DeviceConfig::Auto(auto) => WorkerDevice::on_auto(auto, config)?,
            #[cfg(feature = "verbs")]
            DeviceConfig::Verbs(verbs) => WorkerDevice::on_verbs(verbs, config)?,
            #[cfg(feature = "tcp")]
            DeviceConfig::Tcp(tcp) => WorkerDevice::on_tcp(tcp, config)?,
            #[cfg(feature = "ucx")]
            DeviceConfig::Ucx(ucx) => return Self::on_ucx(ucx, config),
            #[cfg(feature = "ofi")]
            DeviceConfig::Ofi(ofi) => return Self::on_ofi(ofi, config),
        };
        Ok(WorkerEngine::Matching(Engine::new(device, &config.engine(seed))?))
    }

    // Not inlined: it needs much of the stack.
    #[cfg(feature = "ucx")]
    #[inline(never)]
    fn on_ucx(ucx: &UcxConfig, config: &Config) -> Result<Self, DeviceError> {
        let ucx = Ucx::new(config.of_ucx(ucx)?)?;
        Ok(WorkerEngine::Delegated(Box::new(Delegated::new(Box::new(ucx)))))
    }

    #[cfg(feature = "ofi")]
    #[inline(never)]
    fn on_ofi(ofi: &OfiConfig, config: &Config) -> Result<Self, DeviceError> {
        let ofi = Ofi::new(config.of_ofi(ofi)?)?;
        Ok(WorkerEngine::Delegated(Box::new(Delegated::new(Box::new(ofi)))))
    }
}

/// One call on either engine. A device that matches by itself is kept out of the code of the short
/// way of a message.
macro_rules! on {
    ($engine:expr, $each:ident => $call:expr) => {
        match $engine {
            WorkerEngine::Matching($each) => $call,
            WorkerEngine::Delegated($each) => out_of_line(move || $call),
        }
    };
}

#[cold]
#[inline(never)]
fn out_of_line<R>(call: impl FnOnce() -> R) -> R {
    call()
}

/// The calls that are not on the short way of a message.
impl WorkerEngine {
    pub(crate) fn as_dyn(&self) -> &dyn MatchEngine {
        match self {
            WorkerEngine::Matching(engine) => engine,
            WorkerEngine::Delegated(engine) => &**engine,
        }
    }

    pub(crate) fn as_dyn_mut(&mut self) -> &mut dyn MatchEngine {
        match self {
            WorkerEngine::Matching(engine) => engine,
            WorkerEngine::Delegated(engine) => &mut **engine,
        }
    }
}

/// The calls on the short way of a message: those of [`MatchEngine`], without a trait object.
impl WorkerEngine {
    pub(crate) fn event_descriptor(&self) -> BorrowedFd<'_> {
        on!(self, engine => engine.device().event_descriptor())
    }

    #[inline(always)]
    pub(crate) fn requests(&self) -> &Requests {
        match self {
            WorkerEngine::Matching(engine) => engine.requests(),
            WorkerEngine::Delegated(engine) => engine.requests(),
        }
    }

    #[inline(always)]
    pub(crate) fn requests_mut(&mut self) -> &mut Requests {
        match self {
            WorkerEngine::Matching(engine) => engine.requests_mut(),
            WorkerEngine::Delegated(engine) => engine.requests_mut(),
        }
    }

    #[inline(never)]
    pub(crate) fn send_from(
        &mut self,
        message: Send<&mut Buffer>,
        mode: SendMode,
    ) -> Option<Posted> {
        on!(self, engine => engine.send_from(message, mode))
    }

    #[inline(always)]
    pub(crate) fn inject(
        &mut self,
        peer: PeerId,
        tag: Tag,
        payload: &[u8],
    ) -> Result<(), Box<Fault>> {
        if let WorkerEngine::Matching(engine) = self
            && engine.inject_at_once(Send::new(peer, tag, payload))
        {
            return Ok(());
        }
        self.inject_queued(peer, tag, payload)
    }

    /// The message in parts, so that it needs no address. The fault is in a box, so that the result
    /// fits a register.
    #[cold]
    #[inline(never)]
    fn inject_queued(&mut self, peer: PeerId, tag: Tag, payload: &[u8]) -> Result<(), Box<Fault>> {
        let message = Send::new(peer, tag, payload);
        let sent = on!(self, engine => engine.inject_queued(message, u64::MAX));
        sent.map(drop).map_err(Box::new)
    }

    #[inline(never)]
    pub(crate) fn inject_with(
        &mut self,
        message: Send<&[u8]>,
        copies_max: u64,
    ) -> Result<bool, Box<Fault>> {
        on!(self, engine => engine.inject(message, copies_max)).map_err(Box::new)
    }

    #[inline(always)]
    pub(crate) fn inject_at_once(&mut self, message: Send<&[u8]>) -> bool {
        on!(self, engine => engine.inject_at_once(message))
    }

    #[inline(always)]
    pub(crate) fn receive_parts(
        &mut self,
        pattern: &Pattern,
        buffer: BufferParts,
        is_sole: bool,
        context: Option<u64>,
    ) -> Posted {
        match self {
            WorkerEngine::Matching(engine) => {
                engine.receive_parts(pattern, buffer, is_sole, context)
            }
            WorkerEngine::Delegated(engine) => {
                let pattern = *pattern;
                out_of_line(move || engine.receive_parts(&pattern, buffer, is_sole, context))
            }
        }
    }

    #[inline]
    pub(crate) fn progress(&mut self) -> usize {
        on!(self, engine => engine.progress())
    }

    #[inline(always)]
    pub(crate) fn progress_until(&mut self, request: RequestId) -> (usize, bool) {
        on!(self, engine => engine.progress_until(request))
    }

    #[inline(always)]
    pub(crate) fn progress_to_end(&mut self, request: RequestId) -> WaitedEnd {
        match self {
            WorkerEngine::Matching(engine) => engine.progress_to_end(request),
            WorkerEngine::Delegated(engine) => {
                out_of_line(|| engine.progress_until(request));
                engine.requests().waited_end(request)
            }
        }
    }

    #[inline]
    pub(crate) fn take_ends(&mut self, ends: &mut impl EndList) -> usize {
        on!(self, engine => engine.take_ends(ends))
    }

    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        on!(self, engine => engine.has_work())
    }
}

#[cfg(all(test, not(loom), feature = "ofi", feature = "ucx", feature = "model", feature = "emu"))]
mod tests {
    use tagmatch_model::ModelConfig;

    use super::*;
    use crate::config::HwTags;

    #[test]
    fn no_nic_in_software_gets_between_a_device_that_matches_and_its_network() {
        let ucx = DeviceConfig::Ucx(UcxConfig::default());
        let ofi = DeviceConfig::Ofi(OfiConfig::default());
        let nics = [HwTags::Emu, HwTags::Model(ModelConfig::default())];
        for (device, hw_tags) in [(&ucx, &nics[0]), (&ucx, &nics[1]), (&ofi, &nics[0])] {
            let device = device.clone();
            let hw_tags = hw_tags.clone();
            let config = Config { device, hw_tags, ..Config::default() };
            let refused = WorkerEngine::new(&config, 1).map(drop);
            assert!(matches!(refused, Err(DeviceError::Unsupported { .. })), "{refused:?}");
        }
    }
}
