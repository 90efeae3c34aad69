//! The owner's side of one-sided operations of one peer: what the peer asked for is done when its
//! messages arrive, and answered in the order in which it came.
//!
//! A put is written piece by piece, an atomic operation is done at once, and the bytes of a get are
//! read when its answer goes out. So what a peer makes its owner keep is bounded: at most
//! [`UNANSWERED_MAX`] answers, of which each that is kept as bytes has at most [`FETCHED_MAX`].

use std::collections::VecDeque;

use tagmatch_device::Bytes;

use crate::rma::regions::{ExposedRegions, RegionUse, Rights};
use crate::wire::{AtomicOp, RemoteFault, RmaHeader, WireError};

/// The most messages that ask for an answer and have none yet, of one initiator to one owner.
pub(crate) const UNANSWERED_MAX: u32 = 256;

/// The most bytes that one atomic operation of a message fetches.
pub(crate) const FETCHED_MAX: usize = 1024;

/// The most notices of one peer that nobody has taken. Further puts with a notice have written
/// their bytes, and are answered once there is room.
pub(crate) const NOTICES_MAX: u32 = 1024;

/// The most notices of all peers that nobody has taken. Those of peers that are down are kept, so
/// peers that come and go would have us keep any number of them.
pub(crate) const ALL_NOTICES_MAX: usize = 1 << 16;

/// An answer that is to be sent.
#[derive(Clone, Debug)]
enum OwedAnswer {
    /// So many operations have succeeded.
    Done(u32),
    Failed(RemoteFault),
    /// A put has written its bytes, and its notice is still to be told.
    Notice {
        value: u64,
        length: u64,
    },
    /// Bytes of a region.
    Get {
        key: u64,
        offset: u64,
        left: u64,
        is_begun: bool,
    },
    /// The old values of an atomic operation.
    Fetched(Vec<u8>),
}

/// A put of which pieces are still to come.
#[derive(Clone, Copy, Debug)]
struct ArrivingPut {
    /// Bytes of the whole put.
    length: u64,
    left: u64,
    /// Why it fails, if it does: its further pieces are dropped.
    fault: Option<RemoteFault>,
}

/// What the owner keeps of one initiator.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerSide {
    answers: VecDeque<OwedAnswer>,
    /// Messages of the peer that ask for an answer which was not sent.
    owed: u32,
    arriving: Option<ArrivingPut>,
    /// Notices of the peer that nobody has taken.
    unread: u32,
}

/// The next message of the owner to the initiator.
#[derive(Debug)]
pub(crate) struct NextAnswer<'a> {
    pub(crate) header: RmaHeader,
    pub(crate) payload: &'a [u8],
}

impl OwnerSide {
    pub(crate) fn is_idle(&self) -> bool {
        self.answers.is_empty() && self.arriving.is_none() && self.unread == 0
    }

    pub(crate) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    fn owe(&mut self) -> Result<(), WireError> {
        self.owed += 1;
        if self.owed > UNANSWERED_MAX {
            return Err(WireError::OneSided("more operations than may wait for an answer"));
        }
        Ok(())
    }

    fn answer(&mut self, answer: Result<OwedAnswer, RemoteFault>) {
        match (answer.unwrap_or_else(OwedAnswer::Failed), self.answers.back_mut()) {
            (OwedAnswer::Done(more), Some(OwedAnswer::Done(count))) => *count += more,
            (answer, _) => self.answers.push_back(answer),
        }
    }

    /// A piece of a put has come.
    pub(crate) fn put(
        &mut self,
        regions: &mut ExposedRegions,
        piece: PutPiece,
        bytes: &Bytes<'_>,
        header: usize,
    ) -> Result<(), WireError> {
        let PutPiece { key, offset, left, notice } = piece;
        let length = (bytes.len() - header) as u64;
        if length == 0 && left > 0 {
            return Err(WireError::OneSided("a piece of a put without bytes"));
        }
        let rest = length.checked_add(left);
        let rest = rest.ok_or(WireError::OneSided("a put that is longer than memory"))?;
        let arriving = match self.arriving.take() {
            Some(put) if put.left != rest => {
                return Err(WireError::OneSided("a piece that doesn't continue its put"));
            }
            Some(put) => put,
            None => {
                self.owe()?;
                // All bytes of the put are looked at, so that one beyond the region changes
                // nothing.
                let fault = regions.access(key, Rights::WRITE, offset, rest).err();
                ArrivingPut { length: rest, left: rest, fault }
            }
        };
        let ArrivingPut { length: total, fault, .. } = arriving;
        let fault = fault.or_else(|| match regions.access(key, Rights::WRITE, offset, length) {
            Ok(accessed) => {
                bytes.copy_to(header, accessed.write());
                None
            }
            Err(RemoteFault::NoRegion) => Some(RemoteFault::Closed),
            Err(fault) => Some(fault),
        });
        if left > 0 {
            self.arriving = Some(ArrivingPut { length: total, left, fault });
            return Ok(());
        }
        if fault.is_none() {
            regions.note(key, RegionUse::WRITE);
        }
        let tell = |value| OwedAnswer::Notice { value, length: total };
        let success = notice.map_or(OwedAnswer::Done(1), tell);
        self.answer(fault.map_or(Ok(success), Err));
        Ok(())
    }

    /// A request for bytes has come.
    pub(crate) fn get(
        &mut self,
        regions: &mut ExposedRegions,
        key: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), WireError> {
        self.no_put_arrives()?;
        self.owe()?;
        let get = OwedAnswer::Get { key, offset, left: length, is_begun: false };
        self.answer(regions.access(key, Rights::READ, offset, length).map(|_| get));
        Ok(())
    }

    /// An atomic operation has come.
    pub(crate) fn atomic(
        &mut self,
        regions: &mut ExposedRegions,
        header: &RmaHeader,
        bytes: &Bytes<'_>,
    ) -> Result<(), WireError> {
        let RmaHeader::Atomic { element, key, offset, count, fetches } = *header else {
            return Ok(());
        };
        self.no_put_arrives()?;
        let start = header.byte_len();
        let count = usize::try_from(count).ok();
        let expected = count.and_then(|count| element.operand_bytes(count));
        if expected != Some(bytes.len() - start) {
            return Err(WireError::OneSided("operands that are not those of its elements"));
        }
        let length = count.and_then(|count| element.of.size().checked_mul(count));
        let length = length.filter(|length| !fetches || *length <= FETCHED_MAX);
        let length = length.ok_or(WireError::OneSided("more elements than a message may have"))?;
        self.owe()?;
        let right = regions.right_of_atomic(key, element.op, fetches);
        let done = regions.access(key, right, offset, length as u64).map(|accessed| {
            if !accessed.is_writable() {
                // Rights exclude a region like this for all operations but `Read`.
                let values = || OwedAnswer::Fetched(accessed.read().to_vec());
                return if fetches { values() } else { OwedAnswer::Done(1) };
            }
            let elements = accessed.write();
            let mut fetched = fetches.then(|| vec![0; elements.len()]);
            element.apply(elements, &bytes.to_vec(start), fetched.as_deref_mut());
            fetched.map_or(OwedAnswer::Done(1), OwedAnswer::Fetched)
        });
        if done.is_ok() {
            let changes = u64::from(element.op != AtomicOp::Read);
            let kind = if fetches { RegionUse::READ } else { RegionUse::WRITE };
            regions.note(key, RegionUse { changes, ..kind });
        }
        self.answer(done);
        Ok(())
    }

    /// An error in the books. `unread`: notices of the peer that nobody has taken.
    pub(super) fn audit(&self, unread: usize) -> Option<String> {
        let answers =
            |answer: &OwedAnswer| if let OwedAnswer::Done(count) = answer { *count } else { 1 };
        let kept: u32 = self.answers.iter().map(answers).sum();
        let owed = kept + u32::from(self.arriving.is_some());
        (owed != self.owed || unread != self.unread as usize).then(|| {
            let OwnerSide { owed: counted, unread: told, .. } = self;
            format!("{counted} answers are owed, {owed} kept; {told} notices told, {unread} kept")
        })
    }

    fn no_put_arrives(&self) -> Result<(), WireError> {
        let error = WireError::OneSided("an operation between the pieces of a put");
        if self.arriving.is_none() { Ok(()) } else { Err(error) }
    }

    /// The next message, with a payload of at most `payload_max` bytes. `None`: there is none, or
    /// the oldest waits until notices are taken. [`OwnerSide::sent`] follows if it has gone out.
    /// `tell` is given the number and the length of each put whose notice is told now; `has_room`:
    /// one more may be.
    pub(crate) fn next<'a>(
        &'a mut self,
        regions: &'a mut ExposedRegions,
        payload_max: usize,
        has_room: bool,
        mut tell: impl FnMut(u64, u64),
    ) -> Option<NextAnswer<'a>> {
        if let Some(&OwedAnswer::Notice { value, length }) = self.answers.front() {
            if self.unread >= NOTICES_MAX || !has_room {
                return None;
            }
            tell(value, length);
            self.unread += 1;
            self.answers[0] = OwedAnswer::Done(1);
        }
        if let Some(&OwedAnswer::Get { key, offset, left, is_begun }) = self.answers.front()
            && let Err(fault) = regions.access(key, Rights::READ, offset, left)
        {
            let is_closed = is_begun || fault == RemoteFault::NoRegion;
            self.answers[0] =
                OwedAnswer::Failed(if is_closed { RemoteFault::Closed } else { fault });
        }
        let fault = |at: usize| match self.answers.get(at) {
            Some(OwedAnswer::Failed(fault)) => Some(*fault),
            _ => None,
        };
        let (header, payload) = match self.answers.front()? {
            OwedAnswer::Done(count) => {
                (RmaHeader::Done { count: *count, fault: fault(1) }, &[][..])
            }
            OwedAnswer::Failed(_) => (RmaHeader::Done { count: 0, fault: fault(0) }, &[][..]),
            OwedAnswer::Notice { .. } => return None,
            OwedAnswer::Get { key, offset, left, .. } => {
                let length = (*left).min(payload_max as u64);
                let accessed = regions.access(*key, Rights::READ, *offset, length).ok()?;
                (RmaHeader::Data, accessed.read())
            }
            OwedAnswer::Fetched(bytes) => (RmaHeader::Data, &bytes[..]),
        };
        Some(NextAnswer { header, payload })
    }

    /// The message that [`OwnerSide::next`] gave, with so many bytes of payload, has gone out.
    /// Gives the region of a get whose last bytes were in it.
    pub(crate) fn sent(&mut self, header: RmaHeader, payload: usize) -> Option<u64> {
        let mut answered = 1;
        let mut read = None;
        if let RmaHeader::Done { count, fault } = header {
            if count > 0 {
                self.answers.pop_front();
            }
            answered = count;
            if fault.is_some() {
                self.answers.pop_front();
                answered += 1;
            }
        } else if let Some(OwedAnswer::Get { offset, left, is_begun, .. }) =
            self.answers.front_mut()
            && *left > payload as u64
        {
            *offset += payload as u64;
            *left -= payload as u64;
            *is_begun = true;
            answered = 0;
        } else if let Some(OwedAnswer::Get { key, .. }) = self.answers.pop_front() {
            read = Some(key);
        }
        self.owed -= answered;
        read
    }

    /// A notice of this peer was taken. `true`: an answer that has waited for that can go out.
    pub(crate) fn notice_taken(&mut self) -> bool {
        self.unread -= 1;
        self.waits_for_notices()
    }

    /// The oldest answer waits until notices are taken.
    pub(crate) fn waits_for_notices(&self) -> bool {
        self.unread < NOTICES_MAX && matches!(self.answers.front(), Some(OwedAnswer::Notice { .. }))
    }
}

/// A piece of a put, as its header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutPiece {
    pub(crate) key: u64,
    pub(crate) offset: u64,
    pub(crate) left: u64,
    pub(crate) notice: Option<u64>,
}
