//! Exposing buffers to a peer, whose NIC may answer each with a FIN.

use std::io;

use tagmatch_device::{Buffer, DeviceError, Exposure, ExposureId, PeerId};

use super::Verbs;
use super::address::VerbsAddress;
use super::exposure::{ExposedTo, Unregistered, registration_error};
use super::region;

impl Verbs {
    /// See [`Device::expose`](tagmatch_device::Device::expose).
    pub(super) fn expose_to(
        &mut self,
        reader: PeerId,
        buffer: Buffer,
    ) -> Result<Exposure, (Buffer, DeviceError)> {
        let awaits_fin = self.peers.link(reader).is_some_and(|link| link.receive_qp.is_some());
        if awaits_fin && let Err(source) = self.fins.need(1) {
            let error = match source.raw_os_error() {
                Some(libc::ENOBUFS) => DeviceError::too_many_exposed(),
                _ => registration_error(source),
            };
            return Err((buffer, error));
        }
        let is_copied = self.keep_own_memory_before(&buffer).is_ok() && !self.nic_reads(reader);
        let unregistered = if is_copied { Unregistered::Copied } else { Unregistered::Refused };
        let to = ExposedTo { reader, awaits_fin };
        let exposed = self.exposures.expose(&self.pd, buffer, to, unregistered);
        if awaits_fin {
            match (&exposed, self.peers.link_mut(reader)) {
                (Ok(_), Some(link)) => link.fins += 1,
                _ => self.fins.spare(1),
            }
        }
        exposed
    }

    /// See [`Device::withdraw`](tagmatch_device::Device::withdraw). The reader has answered by now,
    /// or will not: its NIC sends no FIN for the buffer any more.
    ///
    /// The arrival of a FIN doesn't end the wait for one: a FIN that the peer's software sends may
    /// be for a message that was sent eagerly and asked for an acknowledgement.
    pub(super) fn withdraw_from(&mut self, reader: PeerId, id: ExposureId) -> Option<Buffer> {
        let (buffer, awaits_fin) = self.exposures.withdraw(id, !self.config.linger.is_zero())?;
        // A connection that has ended waits for no FINs.
        if awaits_fin && let Some(link) = self.peers.link_mut(reader) {
            link.fins -= 1;
            self.fins.spare(1);
        }
        Some(buffer)
    }

    /// Registers the device's own buffers before `buffer`, which must not take the memory without
    /// which no message gets to a peer.
    ///
    /// # Errors
    /// There is no memory for messages.
    pub(super) fn keep_own_memory_before(&mut self, buffer: &Buffer) -> io::Result<()> {
        if region::is_kept(&self.pd, buffer) { Ok(()) } else { self.keep_own_memory() }
    }

    /// As [`keep_own_memory_before`](Self::keep_own_memory_before), before other memory of the
    /// user's.
    ///
    /// # Errors
    /// There is no memory for messages.
    pub(super) fn keep_own_memory(&mut self) -> io::Result<()> {
        // Connections go on with fewer receive buffers.
        let _ = self.receives.keep_reserve();
        self.outbox.buffers.keep_some()
    }

    /// Whether the peer's NIC may read by itself, and so only registered memory.
    fn nic_reads(&self, peer: PeerId) -> bool {
        let address = self.peers.get(peer).and_then(|known| known.address);
        let parsed = address.and_then(|address| VerbsAddress::parse(&address).ok());
        parsed.is_none_or(|address| address.matches_tags) && peer != PeerId::ONESELF
    }
}
