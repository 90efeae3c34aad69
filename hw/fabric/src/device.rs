//! The device.

use std::fmt;
use std::os::fd::BorrowedFd;

use tagmatch_device::matching::{
    Envelope, HeldId, MatchingDevice, MatchingEvent, TagPattern, TagSend, Unfit,
};
use tagmatch_device::{
    Address, Buffer, DeviceError, DownReason, EventDescriptor, Flush, PeerId, RawMemory, Registered,
};

use crate::handshake::{break_with, start_connect};
use crate::transport::TagTransport;
use crate::{flushing, polling, probing};

/// The device over a library that matches tags by itself.
///
/// Has no threads of its own; the library may have some.
pub struct Matching<T: TagTransport> {
    /// The transport. Public for its own tests.
    #[doc(hidden)]
    pub transport: T,
}

impl<T: TagTransport> Matching<T> {
    /// A new device. Peers that get its address can reach it at once.
    ///
    /// # Errors
    /// [`DeviceError::BadSetting`] if a setting is out of its range, or the layout leaves no room
    /// in the library's tags; [`DeviceError::System`] if the library is not installed (the text
    /// names the package), has another version than is known, or refuses the settings, or if the
    /// job's secret can't be read; [`DeviceError::Unsupported`] if the library offers nothing
    /// usable here, if matching in the NIC is required and not possible, or off and switched on by
    /// another setting.
    pub fn new(config: T::Config) -> Result<Self, DeviceError> {
        let mut device = Matching { transport: T::open(config)? };
        let event = MatchingEvent::PeerUp { peer: PeerId::ONESELF };
        device.transport.core_mut().events.push_back(event);
        Ok(device)
    }

    /// The device of a transport that is open.
    pub fn over(transport: T) -> Self {
        Matching { transport }
    }

    /// Finds out what the library offers on this machine, and what a device with these settings
    /// takes.
    pub fn probe(config: &T::Config) -> T::Info {
        T::probe(config)
    }

    /// Whether a message can go to a peer.
    #[inline]
    fn check_peer(&self, peer: PeerId) -> Result<(), Unfit> {
        match self.transport.core().meeting.peers.find(peer) {
            None => Err(Unfit::NoSuchPeer),
            Some(peer) if peer.is_leaving() => Err(Unfit::Down),
            Some(_) => Ok(()),
        }
    }

    #[inline]
    fn work_begun(&mut self) {
        self.transport.core_mut().alarm.work_begun();
    }
}

impl<T: TagTransport> Drop for Matching<T> {
    fn drop(&mut self) {
        flushing::end(&mut self.transport);
    }
}

impl<T: TagTransport> fmt::Debug for Matching<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.transport.core();
        f.debug_struct(T::NAME)
            .field("address", &core.meeting.address)
            .field("under_way", &core.operations.len())
            .finish_non_exhaustive()
    }
}

impl<T: TagTransport> MatchingDevice for Matching<T> {
    fn address(&self) -> Address {
        self.transport.core().meeting.address
    }

    fn connect(&mut self, address: &Address) -> Result<PeerId, DeviceError> {
        self.work_begun();
        start_connect(&mut self.transport, address)
    }

    fn peer_address(&self, peer: PeerId) -> Option<Address> {
        self.transport.core().meeting.peers.find(peer).map(|peer| peer.address)
    }

    fn transports(&self, peer: PeerId) -> Vec<String> {
        self.transport.transports(peer)
    }

    fn register(&mut self, memory: RawMemory) -> Result<Registered, DeviceError> {
        self.transport.register(memory)
    }

    #[inline]
    fn send(&mut self, message: TagSend) -> Result<Option<Buffer>, (Buffer, Unfit)> {
        self.work_begun();
        let checked = self.check_peer(message.peer);
        if let Err(unfit) = checked.and_then(|()| self.transport.check_send(&message)) {
            return Err((message.buffer, unfit));
        }
        self.transport.send(message)
    }

    #[inline]
    fn inject(
        &mut self,
        peer: PeerId,
        tag: u64,
        immediate: Option<u32>,
        payload: &[u8],
    ) -> Result<bool, Unfit> {
        self.work_begun();
        self.check_peer(peer)?;
        self.transport.inject(peer, tag, immediate, payload)
    }

    #[inline]
    fn receive(
        &mut self,
        pattern: TagPattern,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        self.work_begun();
        probing::post_receive(&mut self.transport, pattern, buffer, token)
    }

    fn cancel(&mut self, token: u64) -> bool {
        let key = self.transport.core().tokens.get(&token).copied();
        key.is_some_and(|key| self.transport.cancel(key))
    }

    fn probe(&mut self, pattern: TagPattern) -> Result<Option<Envelope>, Unfit> {
        let found = probing::look_for(&mut self.transport, pattern, false)?;
        Ok(found.map(|(_, envelope)| envelope))
    }

    fn matched_probe(&mut self, pattern: TagPattern) -> Result<Option<(HeldId, Envelope)>, Unfit> {
        probing::hold(&mut self.transport, pattern)
    }

    fn receive_held(
        &mut self,
        message: HeldId,
        buffer: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, Unfit)> {
        self.work_begun();
        probing::receive_held(&mut self.transport, message, buffer, token)
    }

    fn discard_held(&mut self, message: HeldId) -> bool {
        self.work_begun();
        probing::discard_held(&mut self.transport, message)
    }

    #[inline]
    fn poll(&mut self) -> Option<MatchingEvent> {
        polling::next_event(&mut self.transport)
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.work_begun();
        if peer != PeerId::ONESELF {
            break_with(&mut self.transport, peer, DownReason::Disconnected);
        }
    }

    fn close(&mut self) {
        // Whoever closes it polls it from now on.
        self.disarm();
        flushing::close_all(&mut self.transport);
    }

    fn arm(&mut self) -> bool {
        polling::fall_asleep(&mut self.transport)
    }

    fn await_messages(&mut self, is_awaited: bool) {
        self.transport.core_mut().awaits_messages = is_awaited;
    }

    fn disarm(&mut self) {
        self.transport.core_mut().alarm.disarm();
    }

    fn has_work(&self) -> bool {
        polling::is_busy(&self.transport)
    }

    fn has_unsent(&mut self) -> bool {
        flushing::holds_messages(&mut self.transport)
    }

    fn flush(&mut self, peer: PeerId) -> Flush {
        flushing::flush_peer(&mut self.transport, peer)
    }

    fn unexpected_now(&self) -> Option<u64> {
        None
    }
}

impl<T: TagTransport> EventDescriptor for Matching<T> {
    fn event_descriptor(&self) -> BorrowedFd<'_> {
        self.transport.core().alarm.descriptor()
    }
}
