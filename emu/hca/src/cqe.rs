//! Completions, as the device writes them into the program's queues: `struct mlx5_cqe64` and
//! `mlx5_err_cqe` of `mlx5dv.h`. `providers/mlx5/cq.c` of rdma-core reads them.

/// A completion of 64 bytes, and what goes before it in one of 128.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe {
    pub(crate) bytes: [u8; 64],
    /// The first half of a completion of 128 bytes, if it has data.
    pub(crate) before: Option<[u8; 64]>,
    /// An event for a program that waits for solicited completions only.
    pub(crate) is_solicited: bool,
}

/// `MLX5_CQE_*`: what a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Opcode {
    Request = 0,
    ReceiveWriteImmediate = 1,
    ReceiveSend = 2,
    ReceiveSendImmediate = 3,
    NoPacket = 6,
    RequestError = 13,
    ReceiveError = 14,
}

/// `MLX5_CQE_SYNDROME_*`: why a request or a receive has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Syndrome {
    LocalLength = 0x01,
    LocalQpOperation = 0x02,
    LocalProtection = 0x04,
    Flushed = 0x05,
    RemoteInvalidRequest = 0x12,
    RemoteAccess = 0x13,
    RemoteOperation = 0x14,
    RetriesExceeded = 0x15,
    RnrRetriesExceeded = 0x16,
}

/// `app_op` of a completion of tag matching: `providers/mlx5/cq.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TagOpcode {
    Consumed = 0x1,
    Expected = 0x2,
    Unexpected = 0x3,
    NoTag = 0x4,
    Append = 0x5,
    Remove = 0x6,
    Noop = 0x7,
    ConsumedSoftwareRendezvous = 0x9,
    ConsumedMessage = 0xa,
    ConsumedMessageSoftwareRendezvous = 0xb,
}

/// `MLX5_INLINE_SCATTER_32` and `_64`: a short message is in the completion.
const INLINE_32: u8 = 0x4;
const INLINE_64: u8 = 0x8;

impl Cqe {
    /// A completion; `user_index` is of the queue that the program looks it up by.
    pub(crate) fn new(opcode: Opcode, user_index: u32) -> Self {
        let mut cqe = Cqe { bytes: [0; 64], before: None, is_solicited: false };
        cqe.put(32, &user_index.to_be_bytes());
        cqe.bytes[63] = (opcode as u8) << 4;
        cqe
    }

    /// One that says that a request or a receive has failed.
    pub(crate) fn error(opcode: Opcode, user_index: u32, why: Syndrome) -> Self {
        let mut cqe = Self::new(opcode, user_index);
        cqe.bytes[55] = why as u8;
        cqe.is_solicited = true;
        cqe
    }

    pub(crate) fn is_error(&self) -> bool {
        self.bytes[63] >> 4 >= Opcode::RequestError as u8
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The queue pair, with the opcode of a request.
    pub(crate) fn queue_pair(mut self, opcode: u8, qpn: u32) -> Self {
        self.put(56, &(u32::from(opcode) << 24 | qpn & 0xff_ffff).to_be_bytes());
        self
    }

    /// The number of the request or receive in its queue.
    pub(crate) fn counter(mut self, counter: u16) -> Self {
        self.put(60, &counter.to_be_bytes());
        self
    }

    /// Bytes of the message.
    pub(crate) fn length(mut self, bytes: u32) -> Self {
        self.put(44, &bytes.to_be_bytes());
        self
    }

    pub(crate) fn immediate(mut self, immediate: Option<u32>) -> Self {
        self.put(36, &immediate.unwrap_or_default().to_be_bytes());
        self
    }

    /// Where a message comes from.
    pub(crate) fn source(mut self, qpn: u32, lid: u16, has_grh: bool) -> Self {
        self.put(22, &lid.to_be_bytes());
        let word = u32::from(has_grh) << 28 | qpn & 0xff_ffff;
        self.put(24, &word.to_be_bytes());
        self
    }

    /// Marks a completion of tag matching: its kind, and its entry.
    pub(crate) fn tag(mut self, opcode: TagOpcode, index: u16) -> Self {
        const APP_TAG_MATCHING: u8 = 1;
        self.bytes[40] = APP_TAG_MATCHING;
        self.bytes[41] = opcode as u8;
        self.put(42, &index.to_be_bytes());
        self
    }

    /// The answer of an operation on the list: whether it succeeded, and the device's count of
    /// unexpected messages.
    pub(crate) fn answer(mut self, is_ok: bool, count: u16) -> Self {
        self.put(0, &(u32::from(is_ok) << 31).to_be_bytes());
        self.put(4, &count.to_be_bytes());
        self
    }

    /// The header of the message that has matched an entry.
    pub(crate) fn header(mut self, header: &[u8; 16]) -> Self {
        self.put(0, header);
        self
    }

    /// Whether data of this length goes into a completion of `size` bytes.
    pub(crate) fn takes(size: u32, length: usize) -> bool {
        length > 0 && length <= if size == 128 { 64 } else { 32 }
    }

    /// Puts the data of a short message into the completion of a queue of `size`.
    pub(crate) fn data(mut self, size: u32, data: &[u8]) -> Self {
        // Bytes beyond the data have no meaning, and are no zeros that a program could rely on.
        if size == 128 {
            let mut before = [0xee; 64];
            before[..data.len()].copy_from_slice(data);
            self.before = Some(before);
            self.bytes[63] |= INLINE_64;
        } else {
            self.put(0, &[0xee; 32]);
            self.put(0, data);
            self.bytes[63] |= INLINE_32;
        }
        self
    }

    pub(crate) fn solicited(mut self, is_solicited: bool) -> Self {
        self.is_solicited |= is_solicited;
        self
    }

    /// The last byte says whose turn the place is.
    pub(crate) fn owned(mut self, owner: bool) -> [u8; 64] {
        self.bytes[63] |= u8::from(owner);
        self.bytes
    }
}
