//! Reading a peer's memory, directly.

use std::io;
use std::os::fd::AsFd;

use super::Shm;
use super::lane::Stage;
use super::progress::Queued;
use tagmatch_device::{Buffer, PeerId, ReadError, ReadMode, ReadRequest, RemoteSpan};
use tagmatch_os::{event, process};

/// So many bytes are read per poll, so that one huge read doesn't hold up messages. At 10 GB/s that
/// is a tenth of a millisecond.
const BYTES_PER_POLL: usize = 1 << 20;

/// A read under way.
pub(crate) struct DirectRead {
    peer: PeerId,
    remote: RemoteSpan,
    into: Buffer,
    length: usize,
    done: usize,
    token: u64,
}

impl Shm {
    /// See [`Device::read`](tagmatch_device::Device::read).
    pub(crate) fn start_read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        let ReadRequest { peer, remote, into, token } = request;
        let length = usize::try_from(remote.length).ok();
        let Some(length) = length.filter(|length| *length <= into.len()) else {
            return Err((into, ReadError::BadSpan));
        };
        if remote.address.checked_add(remote.length).is_none() {
            return Err((into, ReadError::BadSpan));
        }
        if !into.is_writable() {
            let errno = libc::EINVAL;
            return Err((into, ReadError::Failed { errno }));
        }
        let link = match self.lanes.get_mut(peer.index()).map(|lane| &mut lane.stage) {
            Some(Stage::Up(link)) => link,
            Some(Stage::Connecting(_)) => {
                let errno = libc::ENOTCONN;
                return Err((into, ReadError::Failed { errno }));
            }
            Some(Stage::Draining(..) | Stage::Down) | None => {
                return Err((into, ReadError::PeerDown));
            }
        };
        self.needs_attention = true;
        if link.read_mode == ReadMode::Direct {
            self.direct_reads.push_back(DirectRead { peer, remote, into, length, done: 0, token });
        } else {
            link.copied.start(remote, into, token);
            if !self.copying.contains(&peer) {
                self.copying.push(peer);
            }
        }
        Ok(())
    }

    /// Pushes direct reads on, in turn, as far as one poll may.
    pub(crate) fn push_direct_reads(&mut self) {
        let mut budget = BYTES_PER_POLL;
        while budget > 0
            && let Some(mut read) = self.direct_reads.pop_front()
        {
            let result = self.push_direct_read(&mut read, &mut budget);
            match result {
                Some(result) => {
                    let done = Queued::ReadDone(read.token, read.into, result);
                    self.events.push_back(done);
                    // A poll reports one event: the next read is for the next poll.
                    return;
                }
                None => self.direct_reads.push_back(read),
            }
        }
    }

    /// Pushes one read on; gives its result when it has one.
    fn push_direct_read(
        &self,
        read: &mut DirectRead,
        budget: &mut usize,
    ) -> Option<Result<(), ReadError>> {
        let Some(Stage::Up(link)) = self.lanes.get(read.peer.index()).map(|lane| &lane.stage)
        else {
            return Some(Err(ReadError::PeerDown));
        };
        let Some(into) = read.into.as_mut_slice() else {
            let errno = libc::EINVAL;
            return Some(Err(ReadError::Failed { errno }));
        };
        let Some(process) = &link.process else {
            // Oneself: the buffer is in the table.
            let Some(bytes) = self.exposures.bytes(read.remote) else {
                return Some(Err(ReadError::BadSpan));
            };
            into[..read.length].copy_from_slice(bytes);
            return Some(Ok(()));
        };
        let end = read.done + (read.length - read.done).min(*budget);
        while read.done < end {
            let address = read.remote.address + read.done as u64;
            match process::read_memory(process.pid, address, &mut into[read.done..end]) {
                // Nothing, and no error: the memory ends here.
                Ok(0) => return Some(Err(ReadError::BadSpan)),
                Ok(count) => {
                    read.done += count;
                    *budget = budget.saturating_sub(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if process.has_ended() => return Some(Err(ReadError::PeerDown)),
                Err(error) => {
                    return Some(Err(match error.raw_os_error() {
                        Some(libc::EFAULT) => ReadError::BadSpan,
                        Some(libc::ESRCH) => ReadError::PeerDown,
                        errno => ReadError::Failed { errno: errno.unwrap_or(0) },
                    }));
                }
            }
        }
        if read.done < read.length {
            return None;
        }
        // Only now is it known that the number meant this process all the time, and that its worker
        // still kept the buffer: a worker hangs up before it lets go of its buffers.
        let closed = link.socket.as_ref().is_some_and(|socket| event::is_hung_up(socket.as_fd()));
        if closed || process.has_ended() {
            return Some(Err(ReadError::PeerDown));
        }
        Some(Ok(()))
    }

    /// Ends all direct reads from a peer that went down.
    pub(crate) fn give_back_direct_reads(&mut self, peer: PeerId) {
        for _ in 0..self.direct_reads.len() {
            let Some(read) = self.direct_reads.pop_front() else {
                return;
            };
            if read.peer == peer {
                let result = Err(ReadError::PeerDown);
                let done = Queued::ReadDone(read.token, read.into, result);
                self.events.push_back(done);
            } else {
                self.direct_reads.push_back(read);
            }
        }
    }
}
