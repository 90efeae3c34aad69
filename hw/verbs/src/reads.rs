//! Reads of a peer's memory, by RDMA READ requests.

use std::io;
use std::sync::Arc;

use tagmatch_device::{Buffer, Event, PeerId, ReadError, ReadRequest, RemoteSpan};
use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::calls::errno;
use super::exposure::UNREGISTERED_KEY;
use super::failure;
use super::link::{Link, Outbox};
use super::object::Pd;
use super::peer::PeerState;
use super::read::Read;
use super::region::Region;

/// Registers a buffer for the device to write.
fn register(pd: &Arc<Pd>, into: &Buffer, length: usize) -> io::Result<Option<Region>> {
    if length == 0 {
        return Ok(None);
    }
    let access = sys::IBV_ACCESS_LOCAL_WRITE;
    // SAFETY: the buffer is kept, and not accessed, until the region is dropped.
    unsafe { Region::new(pd, into, length, access) }.map(Some)
}

impl Verbs {
    /// See [`Device::read`](tagmatch_device::Device::read).
    pub(super) fn start_read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        let ReadRequest { peer, remote, into, token } = request;
        let length = usize::try_from(remote.length).ok();
        let length = length.filter(|length| *length <= into.len());
        let end = remote.address.checked_add(remote.length);
        let (Some(length), Some(_)) = (length, end) else { return Err((into, ReadError::BadSpan)) };
        if peer == PeerId::ONESELF {
            return self.read_oneself(remote, into, token);
        }
        match self.peers.get(peer).map(|known| &known.state) {
            Some(PeerState::Up(_)) => {}
            Some(PeerState::Connecting(_)) => {
                return Err((into, ReadError::Failed { errno: libc::ENOTCONN }));
            }
            _ => return Err((into, ReadError::PeerDown)),
        }
        if !into.is_writable() {
            return Err((into, ReadError::Failed { errno: libc::EINVAL }));
        }
        let own = self.keep_own_memory_before(&into);
        let registered = if remote.key == UNREGISTERED_KEY && length > 0 {
            Err(io::Error::from_raw_os_error(libc::ENOMEM))
        } else {
            register(&self.pd, &into, length)
        };
        let region = match (registered, own) {
            (Ok(region), _) => region,
            (Err(_), Ok(())) => {
                self.copy_read(peer, remote, into, token);
                return Ok(());
            }
            (Err(error), Err(_)) => {
                return Err((into, ReadError::Failed { errno: errno(&error) }));
            }
        };
        let read = Read { region, into, remote, token, requested: 0 };
        if length == 0 {
            self.events.push_back(read.end(Ok(())));
        } else if let Some(link) = self.peers.up(peer) {
            link.reads.push_back(read);
            self.push_reads(peer);
        }
        Ok(())
    }

    fn read_oneself(
        &mut self,
        remote: RemoteSpan,
        mut into: Buffer,
        token: u64,
    ) -> Result<(), (Buffer, ReadError)> {
        let Some(to) = into.room() else {
            return Err((into, ReadError::Failed { errno: libc::EINVAL }));
        };
        let result = match self.exposures.bytes(PeerId::ONESELF, remote) {
            Some(bytes) => {
                to.fill(bytes);
                Ok(())
            }
            None => Err(ReadError::BadSpan),
        };
        self.events.push_back(Event::ReadDone { token, into, result });
        Ok(())
    }

    /// Posts READ requests for a peer's reads, as far as there is room. If the completion queue has
    /// none, the peer goes to the `waiting_to_read` list.
    pub(super) fn push_reads(&mut self, peer: PeerId) {
        let Some(link) = self.peers.up(peer) else { return };
        if let Err(error) = post_reads(link, self.port.read_max, &mut self.outbox) {
            self.lose_peer(peer, failure::of_call("ibv_post_send", &error));
        } else if link.has_reads_to_push() && !self.outbox.has_room() {
            self.waiting_to_read.push(peer);
        }
    }
}

fn post_reads(link: &mut Link, read_max: u64, outbox: &mut Outbox) -> io::Result<()> {
    while link.reads_under_way < link.reads_max
        && link.room() > 0
        && outbox.has_room()
        && let Some(read) = link.reads.get_mut(link.reads_posted)
        && let Some(region) = &read.region
    {
        let length = (read.remote.length - read.requested).min(read_max);
        let part = sys::ibv_sge {
            addr: read.into.as_ptr().expose_provenance() as u64 + read.requested,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            lkey: region.lkey,
        };
        let remote = sys::ibv_send_wr_rdma {
            remote_addr: read.remote.address + read.requested,
            rkey: read.remote.key,
        };
        let is_last = read.requested + length == read.remote.length;
        read.requested += length;
        link.reads_posted += usize::from(is_last);
        // SAFETY: the read keeps its registered buffer, and stays in the queue until its last
        // request has completed or the queue pair is destroyed.
        unsafe { link.post_read(part, remote, is_last, outbox) }?;
    }
    Ok(())
}
