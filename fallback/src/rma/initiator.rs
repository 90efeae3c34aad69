//! The initiator's side of one-sided operations to one peer: they go out, and are answered, first
//! in, first out.

use std::collections::VecDeque;

use tagmatch_device::{
    AccessEnd, AccessKind, AccessLimits, Buffer, Bytes, PeerId, QuickAccess,
    Refused as DeviceRefused, RegionAccess, RegionPlace, RegionSpan,
};
use tagmatch_soft::Tag;

use crate::error::Fault;
use crate::requests::request::{Refused, RequestId, Status};
use crate::requests::table::Requests;
use crate::rma::owner::{FETCHED_MAX, UNANSWERED_MAX};
use crate::rma::regions::RegionKey;
use crate::slices;
use crate::wire::{ElementUse, RemoteFault, RmaHeader, WireError};

/// A put, a get or an atomic operation, with the memory that it uses here.
#[derive(Clone, Debug)]
pub enum RemoteAction {
    /// Writes the buffer's bytes.
    Put {
        /// The bytes.
        from: Buffer,
        /// A number that the region's owner is told once the bytes are in the region.
        notice: Option<u64>,
    },
    /// Reads as many bytes as the buffer has.
    Get {
        /// Where they go.
        into: Buffer,
    },
    /// Changes elements.
    Atomic {
        /// The operation, and the type of the elements.
        element: ElementUse,
        /// The operands; before them, for an operation that compares, the values to compare with.
        operands: Buffer,
        /// How many elements.
        count: usize,
        /// Where the old values go, if they are wanted.
        old: Option<Buffer>,
    },
}

impl RemoteAction {
    /// The action, with its memory as runs of bytes.
    ///
    /// # Errors
    /// A buffer that is to be written can't be, there is no memory to pack slices, or the buffers
    /// of an atomic operation don't have the bytes of its elements.
    pub(crate) fn checked(self) -> Result<Self, Box<Refused>> {
        let no_memory = |buffer: Buffer| Refused { fault: slices::no_memory(&buffer), buffer };
        let pack = |buffer| slices::packed(buffer).map_err(|buffer| Box::new(no_memory(buffer)));
        let room = |buffer: Buffer| {
            if buffer.is_writable() {
                return slices::room(buffer);
            }
            Err(Box::new(Refused { fault: Fault::ReadOnlyBuffer, buffer }))
        };
        Ok(match self {
            RemoteAction::Put { from, notice } => RemoteAction::Put { from: pack(from)?, notice },
            RemoteAction::Get { into } => RemoteAction::Get { into: room(into)? },
            RemoteAction::Atomic { element, operands, count, old } => {
                let operands = pack(operands)?;
                let old = old.map(room).transpose()?;
                let bytes = element.of.size().checked_mul(count);
                let fits = element.operand_bytes(count) == Some(operands.len())
                    && old.as_ref().is_none_or(|old| Some(old.len()) == bytes);
                let action = RemoteAction::Atomic { element, operands, count, old };
                if !fits {
                    let buffer = slices::of_owner(action.into_buffer());
                    return Err(Box::new(Refused { fault: Fault::BadOperands, buffer }));
                }
                action
            }
        })
    }

    /// Lets `access` do the action in one call. `false`: it is left to begin. A buffer of several
    /// slices shows no bytes, and no bytes are accessed in this way.
    pub(crate) fn do_at_once(&mut self, mut access: impl FnMut(QuickAccess<'_>) -> bool) -> bool {
        match self {
            RemoteAction::Put { from, notice: None } => access(QuickAccess::Write(from)),
            RemoteAction::Put { .. } => false,
            RemoteAction::Get { into } => {
                into.room().is_some_and(|room| access(QuickAccess::Read(room)))
            }
            RemoteAction::Atomic { element, operands, count, old } => {
                let has_old = old.is_some();
                let old = old.as_mut().and_then(Buffer::as_mut_slice);
                let is_shown = old.is_some() == has_old;
                is_shown && element.change_at_once(*count, operands, old, access)
            }
        }
    }

    /// The buffer that the operation's owner gets back.
    pub fn into_buffer(self) -> Buffer {
        match self {
            RemoteAction::Put { from, .. } => from,
            RemoteAction::Get { into } => into,
            RemoteAction::Atomic { operands, old, .. } => old.unwrap_or(operands),
        }
    }

    /// Bytes of the region that it concerns.
    fn length(&self) -> usize {
        match self {
            RemoteAction::Put { from, .. } => from.len(),
            RemoteAction::Get { into } => into.len(),
            RemoteAction::Atomic { element, count, .. } => element.of.size() * count,
        }
    }
}

/// A one-sided operation.
#[derive(Clone, Debug)]
pub struct RemoteOperation {
    /// The region's owner.
    pub peer: PeerId,
    /// The region.
    pub key: RegionKey,
    /// Where the region's token says that it is.
    pub place: RegionPlace,
    /// The first byte's place in it.
    pub offset: u64,
    /// The put, get or atomic operation.
    pub action: RemoteAction,
}

impl RemoteOperation {
    /// Ends the request of an operation that was done at once.
    pub(crate) fn end(self, request: RequestId, requests: &mut Requests) {
        let result = Ok(status_of(self.peer, &self.action));
        end(requests, request, self.action, result);
    }
}

/// An operation that has no answer yet, or not all of them.
#[derive(Clone, Debug)]
struct PendingOperation {
    request: RequestId,
    key: RegionKey,
    /// Where the device finds the region; none once the device has been asked to access it.
    place: RegionPlace,
    offset: u64,
    action: RemoteAction,
    /// No message of this operation goes out before all earlier operations have ended.
    is_fenced: bool,
    /// Bytes of the region for which messages have gone out.
    sent: usize,
    /// Bytes of the region that one message with an answer of its own concerns, at most.
    step: usize,
    /// Messages with an answer of their own that have gone out, all pieces of them.
    asked: u32,
    answered: u32,
    /// Bytes that have come of the next answer.
    received: usize,
    fault: Option<RemoteFault>,
    is_sent: bool,
}

impl PendingOperation {
    /// Whether its answers have bytes.
    fn fetches(&self) -> bool {
        match &self.action {
            RemoteAction::Put { .. } => false,
            RemoteAction::Get { .. } => true,
            RemoteAction::Atomic { old, .. } => old.is_some(),
        }
    }

    /// The device returns the buffer of a put or a get.
    fn give_back(&mut self, buffer: Buffer) {
        if let RemoteAction::Put { from: own, .. } | RemoteAction::Get { into: own } =
            &mut self.action
        {
            *own = buffer;
        }
    }
}

/// The initiator's state of the operations to one owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitiatorSide {
    operations: VecDeque<PendingOperation>,
    /// The first operation of which something is still to be sent.
    sending: usize,
    /// Messages that have gone out and wait for an answer.
    unanswered: u32,
    /// The next operation waits for all earlier ones.
    fence: bool,
    /// Operations whose buffers the device has, to do them by itself. No message is under way.
    accessing: usize,
    /// Older operations that the device has not done: messages do them once it has no other.
    undone: usize,
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmaSent {
    /// There is nothing to send now.
    Nothing,
    /// A message with so many bytes.
    Bytes(usize),
    /// The device refused it.
    Refused(DeviceRefused),
}

impl InitiatorSide {
    pub(crate) fn is_idle(&self) -> bool {
        self.operations.is_empty()
    }

    /// Operations that have not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.sending < self.operations.len()
    }

    /// Holds back operations that begin later until all earlier ones have ended.
    pub(crate) fn fence(&mut self) {
        self.fence = !self.operations.is_empty();
    }

    pub(crate) fn begin(&mut self, request: RequestId, operation: RemoteOperation) {
        let RemoteOperation { key, place, offset, action, .. } = operation;
        let is_fenced = std::mem::take(&mut self.fence);
        let step = action.length();
        self.operations.push_back(PendingOperation {
            request,
            key,
            place,
            offset,
            action,
            is_fenced,
            sent: 0,
            step,
            asked: 0,
            answered: 0,
            received: 0,
            fault: None,
            is_sent: false,
        });
    }

    /// The next operation, for the device to do without a message. `None`: there is none that the
    /// device could do, or an earlier one is under way by messages, which would lose its place in
    /// the order. [`InitiatorSide::accessed`] or [`InitiatorSide::not_begun`] follows.
    pub(crate) fn next_access(
        &mut self,
        peer: PeerId,
        limits: AccessLimits,
    ) -> Option<RegionAccess> {
        let may_begin = self.sending == 0
            && self.unanswered == 0
            && self.undone == 0
            && self.accessing < limits.at_once;
        let has_earlier = self.accessing > 0;
        let op = self.operations.get_mut(self.accessing).filter(|op| may_begin && op.sent == 0)?;
        if op.is_fenced && has_earlier {
            return None;
        }
        let (kind, buffer) = match &mut op.action {
            RemoteAction::Put { from, notice: None } => (AccessKind::Write, from),
            RemoteAction::Get { into } => (AccessKind::Read, into),
            _ => return None,
        };
        // An operation without bytes is checked by the owner, too.
        if op.place.is_none() || buffer.is_empty() || buffer.len() < limits.bytes_min {
            return None;
        }
        let place = std::mem::take(&mut op.place);
        let of = RegionSpan { key: op.key.0, place, offset: op.offset };
        self.accessing += 1;
        Some(RegionAccess { peer, of, kind, buffer: std::mem::take(buffer) })
    }

    /// The device has not begun the operation that [`InitiatorSide::next_access`] gave: messages do
    /// it.
    pub(crate) fn not_begun(&mut self, buffer: Buffer) {
        self.accessing -= 1;
        if let Some(op) = self.operations.get_mut(self.accessing) {
            op.give_back(buffer);
        }
    }

    /// The device has done the oldest operation that it had, or hasn't: then messages do it.
    pub(crate) fn accessed(&mut self, end: AccessEnd, requests: &mut Requests) {
        let AccessEnd { peer, buffer, is_done } = end;
        let op = self.operations.get_mut(self.undone).filter(|_| self.accessing > 0);
        let Some(op) = op else { return };
        op.give_back(buffer);
        self.accessing -= 1;
        if is_done {
            self.end_at(self.undone, peer, requests);
        } else {
            self.undone += 1;
        }
        if self.accessing == 0 {
            self.undone = 0;
        }
    }

    /// Sends the next message, of at most `message_max` bytes, if there is one that may go out.
    pub(crate) fn send_one(
        &mut self,
        message_max: usize,
        send: impl FnOnce(&[u8], &[u8]) -> Result<(), DeviceRefused>,
    ) -> RmaSent {
        let is_first = self.sending == 0;
        let Some(op) = self.operations.get_mut(self.sending) else { return RmaSent::Nothing };
        let is_held_back = op.is_fenced && !is_first || self.accessing > 0;
        if is_held_back || self.unanswered >= UNANSWERED_MAX {
            return RmaSent::Nothing;
        }
        let key = op.key.0;
        let offset = op.offset.wrapping_add(op.sent as u64);
        let mut gathered = Vec::new();
        let (header, payload, concerned, asks) = match &op.action {
            RemoteAction::Put { from, notice } => {
                let rest = from.get(op.sent..).unwrap_or_default();
                let piece = &rest[..rest.len().min(message_max - RmaHeader::BYTES_MAX)];
                let left = rest.len() - piece.len();
                let notice = notice.filter(|_| left == 0);
                let header = RmaHeader::Put { key, offset, left: left as u64, notice };
                (header, piece, piece.len(), left == 0)
            }
            RemoteAction::Get { into } => {
                let length = into.len();
                let header = RmaHeader::Get { key, offset, length: length as u64 };
                (header, &[][..], length, true)
            }
            RemoteAction::Atomic { element, operands, count, old } => {
                let size = element.of.size();
                let room = (message_max - RmaHeader::LONG) / (size * element.op.operands().max(1));
                let step = if old.is_some() { room.min(FETCHED_MAX / size) } else { room };
                op.step = step * size;
                let begun = op.sent / size;
                let count = step.min(count - begun);
                let all = operands.len() / element.op.operands().max(1);
                // The values to compare with, then the operands, of these elements alone.
                for kind in 0..element.op.operands() {
                    gathered.extend_from_slice(&operands[kind * all + op.sent..][..count * size]);
                }
                let fetches = old.is_some();
                let element = *element;
                let bytes = count * size;
                let count = count as u64;
                let header = RmaHeader::Atomic { element, key, offset, count, fetches };
                (header, &gathered[..], bytes, true)
            }
        };
        let bytes = header.emit();
        if let Err(refused) = send(&bytes[..header.byte_len()], payload) {
            return RmaSent::Refused(refused);
        }
        let message = header.byte_len() + payload.len();
        op.sent += concerned;
        op.is_sent = op.sent >= op.action.length();
        if asks {
            op.asked += 1;
            self.unanswered += 1;
        }
        if op.is_sent {
            self.sending += 1;
        }
        RmaSent::Bytes(message)
    }

    /// The oldest operation that waits for an answer.
    fn oldest(&mut self) -> Result<&mut PendingOperation, WireError> {
        let oldest = self.operations.front_mut().filter(|op| op.asked > op.answered);
        oldest.ok_or(WireError::OneSided("an answer that answers no operation"))
    }

    /// An answer without bytes has come.
    pub(crate) fn done(
        &mut self,
        peer: PeerId,
        count: u32,
        fault: Option<RemoteFault>,
        requests: &mut Requests,
    ) -> Result<(), WireError> {
        let answers = u64::from(count) + u64::from(fault.is_some());
        if answers == 0 {
            return Err(WireError::OneSided("an answer that says nothing"));
        }
        self.check_answers(count, answers)?;
        for _ in 0..count {
            self.answered(peer, requests);
        }
        if fault.is_some() {
            let oldest = self.oldest()?;
            oldest.fault = oldest.fault.or(fault);
            self.answered(peer, requests);
        }
        Ok(())
    }

    /// Whether so many answers are due, of which the first `bare` have no bytes. Nothing is done
    /// before that, so that a wrong message ends no operation with success.
    fn check_answers(&self, bare: u32, answers: u64) -> Result<(), WireError> {
        let mut before = 0;
        for op in self.operations.iter().take_while(|op| op.asked > op.answered) {
            if before >= answers {
                break;
            }
            if op.fetches() && before < u64::from(bare) {
                return Err(WireError::OneSided("an answer without the bytes that were asked for"));
            }
            before += u64::from(op.asked - op.answered);
        }
        if before < answers {
            return Err(WireError::OneSided("an answer that answers no operation"));
        }
        Ok(())
    }

    /// Bytes of an answer have come.
    pub(crate) fn data(
        &mut self,
        peer: PeerId,
        bytes: &Bytes<'_>,
        requests: &mut Requests,
    ) -> Result<(), WireError> {
        let op = self.oldest()?;
        if !op.fetches() {
            return Err(WireError::OneSided("bytes that nobody has asked for"));
        }
        let total = op.action.length();
        let start = op.answered as usize * op.step;
        let expected = op.step.min(total - start) - op.received;
        let length = bytes.len() - RmaHeader::ANSWER_BYTES;
        if length > expected || length == 0 && expected > 0 {
            return Err(WireError::OneSided("more bytes than were asked for, or none"));
        }
        let into = match &mut op.action {
            RemoteAction::Get { into } => into.room(),
            RemoteAction::Atomic { old: Some(old), .. } => old.room(),
            _ => None,
        };
        let at = start + op.received;
        let room = into.and_then(|room| room.part(at..at + length)).unwrap_or_default();
        bytes.copy_to_room(RmaHeader::ANSWER_BYTES, room);
        op.received += length;
        if length == expected {
            self.answered(peer, requests);
        }
        Ok(())
    }

    /// The oldest operation has got its next answer.
    fn answered(&mut self, peer: PeerId, requests: &mut Requests) {
        self.unanswered -= 1;
        let Some(op) = self.operations.front_mut() else { return };
        op.answered += 1;
        op.received = 0;
        if !op.is_sent || op.answered < op.asked {
            return;
        }
        self.sending -= 1;
        self.end_at(0, peer, requests);
    }

    /// Ends an operation: the oldest one has the number 0.
    fn end_at(&mut self, number: usize, peer: PeerId, requests: &mut Requests) {
        let Some(op) = self.operations.remove(number) else { return };
        if self.operations.is_empty() {
            self.fence = false;
        }
        let status = status_of(peer, &op.action);
        let result = op.fault.map_or(Ok(status), |fault| Err(Fault::Remote { peer, fault }));
        end(requests, op.request, op.action, result);
    }

    /// An error in the books.
    pub(super) fn audit(&self) -> Option<String> {
        let by_device = self.accessing + self.undone;
        if by_device > 0 && (self.accessing == 0 || self.sending > 0 || self.unanswered > 0)
            || by_device > self.operations.len()
        {
            return Some("the device does an operation beside messages".to_owned());
        }
        let unanswered: u32 = self.operations.iter().map(|op| op.asked - op.answered).sum();
        let sent = self.operations.iter().take_while(|op| op.is_sent).count();
        (unanswered != self.unanswered || sent != self.sending).then(|| {
            let InitiatorSide { unanswered: counted, sending, .. } = self;
            format!("{counted} messages unanswered, {unanswered} kept; {sending} sent, {sent} kept")
        })
    }

    /// Ends all operations: the peer is down.
    pub(crate) fn lose(self, fault: Fault, requests: &mut Requests) {
        for op in self.operations {
            end(requests, op.request, op.action, Err(fault));
        }
    }
}

/// The status of an operation that has succeeded.
fn status_of(peer: PeerId, action: &RemoteAction) -> Status {
    let length = action.length() as u64;
    Status { source: peer, tag: Tag(0), length, truncated: false, immediate: None }
}

/// Ends the request of an operation, and gives its buffer back.
fn end(
    requests: &mut Requests,
    request: RequestId,
    action: RemoteAction,
    result: Result<Status, Fault>,
) {
    let mut buffer = action.into_buffer();
    buffer.unpack(if result.is_ok() { usize::MAX } else { 0 });
    requests.complete(request, result, slices::of_owner(buffer));
}
