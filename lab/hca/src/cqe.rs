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
    /// The queue goes on in another place.
    Resized = 5,
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
    BadResponse = 0x10,
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

    /// The kind of a datagram's packet, in place of a service level: of the header, and whether
    /// UDP follows it (the manual of the cards, as `uct_ud_iface_check_grh` of UCX cites it).
    pub(crate) fn roce(mut self, packet: u8) -> Self {
        self.bytes[24] |= packet & 0xf;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of `struct mlx5_cqe64` (`mlx5dv.h`), all numbers big-endian.
    #[test]
    fn a_completion_has_each_number_where_libmlx5_reads_it() {
        let cqe = Cqe::new(Opcode::ReceiveSendImmediate, 0x8182_8384)
            .queue_pair(0x0a, 0xff12_3456)
            .counter(0x9192)
            .length(0xa1a2_a3a4)
            .immediate(Some(0xb1b2_b3b4))
            .source(0xff65_4321, 0xc1c2, true)
            .tag(TagOpcode::Expected, 0xd1d2)
            .owned(true);
        let mut expected = [0; 64];
        expected[22..28].copy_from_slice(&[0xc1, 0xc2, 0x10, 0x65, 0x43, 0x21]);
        expected[32..40].copy_from_slice(&[0x81, 0x82, 0x83, 0x84, 0xb1, 0xb2, 0xb3, 0xb4]);
        expected[40..48].copy_from_slice(&[1, 2, 0xd1, 0xd2, 0xa1, 0xa2, 0xa3, 0xa4]);
        expected[56..64].copy_from_slice(&[0x0a, 0x12, 0x34, 0x56, 0x91, 0x92, 0, 0x31]);
        assert_eq!(cqe, expected);
        assert_eq!(
            Cqe::new(Opcode::Request, 0).source(1, 2, false).owned(false)[24..28],
            [0, 0, 0, 1]
        );
    }

    #[test]
    fn an_error_says_why_and_asks_for_attention() {
        for opcode in [Opcode::RequestError, Opcode::ReceiveError] {
            let cqe = Cqe::error(opcode, 7, Syndrome::RetriesExceeded);
            assert!(cqe.is_error() && cqe.is_solicited && cqe.solicited(false).is_solicited);
            assert_eq!((cqe.bytes[55], cqe.bytes[63]), (0x15, (opcode as u8) << 4));
        }
        let good = Cqe::new(Opcode::NoPacket, 7);
        assert!(!good.is_error() && !good.is_solicited && good.solicited(true).is_solicited);
    }

    #[test]
    fn the_answer_and_the_header_of_a_list_come_first() {
        let cqe = Cqe::new(Opcode::NoPacket, 0);
        assert_eq!(cqe.answer(true, 0x8182).bytes[..6], [0x80, 0, 0, 0, 0x81, 0x82]);
        assert_eq!(cqe.answer(false, 0).bytes[..6], [0; 6]);
        assert_eq!(cqe.header(&[9; 16]).bytes[..17], [&[9; 16][..], &[0]].concat());
    }

    /// Half of a completion is for data.
    #[test]
    fn a_short_message_is_in_its_completion() {
        for (size, room, flag) in [(64, 32, 0x24), (128, 64, 0x28)] {
            let fits = [0, 1, room, room + 1].map(|length| Cqe::takes(size, length));
            assert_eq!(fits, [false, true, true, false]);
            for length in [1, room] {
                let cqe = Cqe::new(Opcode::ReceiveSend, 0).data(size, &vec![7; length]);
                let data = cqe.before.unwrap_or(cqe.bytes);
                assert_eq!(cqe.before.is_some(), size == 128);
                assert_eq!((&data[..length], cqe.bytes[63]), (&vec![7; length][..], flag));
                assert!(data[length..room].iter().all(|byte| *byte != 0), "no zeros to rely on");
            }
        }
    }
}
