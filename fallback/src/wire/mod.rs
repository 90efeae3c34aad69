//! The messages between two workers, byte for byte: the headers of `infiniband/tm_types.h`, and our
//! own.
//!
//! | message | bytes |
//! |---|---|
//! | EAGER | [`Tmh`], payload |
//! | RNDV | [`Tmh`], [`Rvh`], [`Particulars`] (16 bytes of ours) |
//! | FIN | [`Tmh`]; up to 16 more bytes are accepted and ignored (hardware may echo the RVH) |
//! | NO_TAG | [`Control`]: credits, aborts, and what goes with a rendezvous request; [`Fragment`], payload; or [`RmaHeader`], payload |
//!
//! All numbers are big-endian. TMH and RVH are those that a tag-matching NIC reads and writes
//! (rdma-core, `libibverbs/tm_types.h`), so that a peer with such a NIC and a peer without one talk
//! to each other with no negotiation of formats.

mod app_ctx;
mod atomic;
mod error;
mod fragment;
mod remote_fault;
mod rma;

pub use app_ctx::AppCtx;
pub use atomic::{AtomicOp, AtomicType, ElementUse, FetchInto};
use error::VERSION;
pub use error::{MessageKind, WireError};
pub use fragment::Fragment;
pub use remote_fault::RemoteFault;
pub use rma::RmaHeader;
use tagmatch_device::tm::{self, be32, be64};
pub use tagmatch_device::tm::{Opcode, RVH_BYTES, Rvh, TMH_BYTES};
use tagmatch_device::{Bytes, RemoteSpan};
use tagmatch_soft::Tag;

/// Bytes in a [`Particulars`].
pub const PARTICULARS_BYTES: usize = 16;
/// Bytes in a rendezvous request of ours.
pub const RENDEZVOUS_BYTES: usize = TMH_BYTES + RVH_BYTES + PARTICULARS_BYTES;
/// The longest FIN that is accepted: a NIC may send back TMH and RVH.
pub const FIN_BYTES_MAX: usize = TMH_BYTES + RVH_BYTES;

/// The tag-matching header, `struct ibv_tmh`: opcode at 0, three reserved bytes, `app_ctx` at 4,
/// tag at 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmh {
    /// The kind of message.
    pub opcode: Opcode,
    /// Handed through.
    pub app_ctx: AppCtx,
    /// What is matched.
    pub tag: Tag,
}

impl Tmh {
    /// Writes the header.
    #[inline(always)]
    pub fn emit(&self) -> [u8; TMH_BYTES] {
        tm::Tmh { opcode: self.opcode, app_ctx: self.app_ctx.0, tag: self.tag.0 }.emit()
    }

    /// Reads the header. The reserved bytes are ignored: UCX keeps something of its own in them.
    #[inline]
    pub fn parse(bytes: &[u8; TMH_BYTES]) -> Result<Self, WireError> {
        let tm::Tmh { opcode, app_ctx, tag } = tm::Tmh::parse(bytes).map_err(WireError::Opcode)?;
        Ok(Tmh { opcode, app_ctx: AppCtx(app_ctx), tag: Tag(tag) })
    }
}

/// What a rendezvous request carries beside TMH and RVH, for software: version at 0, flags at 1
/// (bit 0: there is immediate data), immediate data at 4, the real length at 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Particulars {
    /// Immediate data for the receiver's completion.
    pub immediate: Option<u32>,
    /// Length of the message in bytes.
    pub length: u64,
}

impl Particulars {
    const IMMEDIATE: u8 = 1;

    /// Writes it.
    pub fn emit(&self) -> [u8; PARTICULARS_BYTES] {
        let mut out = [0; PARTICULARS_BYTES];
        out[0] = VERSION;
        out[1] = if self.immediate.is_some() { Self::IMMEDIATE } else { 0 };
        out[4..8].copy_from_slice(&self.immediate.unwrap_or(0).to_be_bytes());
        out[8..16].copy_from_slice(&self.length.to_be_bytes());
        out
    }

    /// Reads it.
    pub fn parse(bytes: &[u8; PARTICULARS_BYTES]) -> Result<Self, WireError> {
        if bytes[0] != VERSION {
            return Err(WireError::Version(bytes[0]));
        }
        if bytes[1] & !Self::IMMEDIATE != 0 {
            return Err(WireError::Flags(bytes[1].into()));
        }
        let immediate = (bytes[1] & Self::IMMEDIATE != 0).then(|| be32(bytes, 4));
        Ok(Particulars { immediate, length: be64(bytes, 8) })
    }
}

/// A rendezvous request, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// Handed back in the FIN; with its flags.
    pub app_ctx: AppCtx,
    /// What is matched.
    pub tag: Tag,
    /// Where the bytes lie; its length is the message's.
    pub span: RemoteSpan,
    /// Immediate data for the receiver's completion.
    pub immediate: Option<u32>,
}

impl Rendezvous {
    /// The request of an operation.
    pub fn new(operation: AppCtx, tag: Tag, span: RemoteSpan, immediate: Option<u32>) -> Self {
        let companion = immediate.is_some() || span.length >= u32::MAX.into();
        Rendezvous { app_ctx: operation.of_rendezvous(companion), tag, span, immediate }
    }

    /// The messages that go right behind the request, with what a NIC that matches it drops: none,
    /// one or two.
    pub fn companions(&self) -> impl Iterator<Item = [u8; Control::BYTES]> + use<> {
        let app_ctx = self.app_ctx.operation();
        let RemoteSpan { length, .. } = self.span;
        let has_length = length >= u32::MAX.into();
        let companion = Control::Companion { app_ctx, immediate: self.immediate, has_length };
        let companion = self.app_ctx.has_companion().then_some(companion);
        let length = has_length.then_some(Control::Length { app_ctx, length });
        companion.into_iter().chain(length).map(|control| control.emit())
    }

    /// Writes the request.
    pub fn emit(&self) -> [u8; RENDEZVOUS_BYTES] {
        let tmh = Tmh { opcode: Opcode::Rendezvous, app_ctx: self.app_ctx, tag: self.tag };
        let len = u32::try_from(self.span.length).unwrap_or(u32::MAX);
        let rvh = Rvh { va: self.span.address, rkey: self.span.key, len };
        let particulars = Particulars { immediate: self.immediate, length: self.span.length };
        let mut out = [0; RENDEZVOUS_BYTES];
        out[..16].copy_from_slice(&tmh.emit());
        out[16..32].copy_from_slice(&rvh.emit());
        out[32..].copy_from_slice(&particulars.emit());
        out
    }

    /// Reads a request whose TMH was read already. Without particulars the RVH's length counts.
    pub fn parse(tmh: &Tmh, bytes: &Bytes<'_>) -> Result<Self, WireError> {
        let length = bytes.len();
        let wrong = MessageKind::Rendezvous.of_length(length);
        let rvh = Rvh::parse(&bytes.array(TMH_BYTES).ok_or(wrong)?);
        let particulars = match length {
            32 => Particulars { immediate: None, length: rvh.len.into() },
            RENDEZVOUS_BYTES => Particulars::parse(&bytes.array(32).ok_or(wrong)?)?,
            _ => return Err(wrong),
        };
        let real = particulars.length;
        let agrees = rvh.len == u32::try_from(real).unwrap_or(u32::MAX);
        if !agrees || (length == 32 && rvh.len == u32::MAX) {
            return Err(WireError::Lengths { rvh: rvh.len, real });
        }
        let span = RemoteSpan { address: rvh.va, key: rvh.rkey, length: real };
        let operation = tmh.app_ctx.operation();
        let request = Rendezvous::new(operation, tmh.tag, span, particulars.immediate);
        if request.app_ctx != tmh.app_ctx {
            return Err(WireError::Flags(tmh.app_ctx.0));
        }
        Ok(request)
    }
}

/// A NO_TAG message of ours, 16 bytes: opcode 0 at 0, version at 1, kind at 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Kind 1. Allows that many more: messages at 4 (u32), bytes at 8 (u64).
    Credit {
        /// Further messages.
        messages: u32,
        /// Further bytes of eager payload, as the store counts them.
        bytes: u64,
    },
    /// Kind 2. The receiver could not read a rendezvous: `app_ctx` at 4, errno at 8 (u32).
    Abort {
        /// Of the rendezvous request.
        app_ctx: AppCtx,
        /// What the read failed with, 0 if unknown.
        errno: u32,
    },
    /// Kind 3, right behind a rendezvous request with *companion*: what a NIC that matches
    /// the request does not hand on. Flags at 3 (bit 0: there is immediate data, bit 1: a
    /// [`Control::Length`] follows), `app_ctx` at 4, immediate data at 8 (u32).
    Companion {
        /// Of the rendezvous request.
        app_ctx: AppCtx,
        /// Immediate data for the receiver's completion.
        immediate: Option<u32>,
        /// Whether the length stands in the next message.
        has_length: bool,
    },
    /// Kind 4, behind a companion: a length that is beyond an RVH's. `app_ctx` at 4, length at
    /// 8 (u64).
    Length {
        /// Of the rendezvous request.
        app_ctx: AppCtx,
        /// Length of the message in bytes.
        length: u64,
    },
}

impl Control {
    /// Bytes in a control message.
    pub const BYTES: usize = 16;
    const IMMEDIATE: u8 = 1;
    const LENGTH: u8 = 2;

    /// Writes the message.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0] = Opcode::NoTag as u8;
        out[1] = VERSION;
        match *self {
            Control::Credit { messages, bytes } => {
                out[2] = 1;
                out[4..8].copy_from_slice(&messages.to_be_bytes());
                out[8..16].copy_from_slice(&bytes.to_be_bytes());
            }
            Control::Abort { app_ctx, errno } => {
                out[2] = 2;
                out[4..8].copy_from_slice(&app_ctx.0.to_be_bytes());
                out[8..12].copy_from_slice(&errno.to_be_bytes());
            }
            Control::Companion { app_ctx, immediate, has_length } => {
                out[2] = 3;
                out[3] = if immediate.is_some() { Self::IMMEDIATE } else { 0 }
                    | if has_length { Self::LENGTH } else { 0 };
                out[4..8].copy_from_slice(&app_ctx.0.to_be_bytes());
                out[8..12].copy_from_slice(&immediate.unwrap_or(0).to_be_bytes());
            }
            Control::Length { app_ctx, length } => {
                out[2] = 4;
                out[4..8].copy_from_slice(&app_ctx.0.to_be_bytes());
                out[8..16].copy_from_slice(&length.to_be_bytes());
            }
        }
        out
    }

    /// Reads a message whose first byte said NO_TAG.
    pub fn parse(bytes: &Bytes<'_>) -> Result<Self, WireError> {
        let length = bytes.len();
        let wrong = MessageKind::Control.of_length(length);
        let all: [u8; Self::BYTES] = bytes.array(0).filter(|_| length == 16).ok_or(wrong)?;
        if all[1] != VERSION {
            return Err(WireError::Version(all[1]));
        }
        let app_ctx = AppCtx(be32(&all, 4)).operation();
        match all[2] {
            1 => Ok(Control::Credit { messages: be32(&all, 4), bytes: be64(&all, 8) }),
            2 => Ok(Control::Abort { app_ctx, errno: be32(&all, 8) }),
            3 if all[3] & !(Self::IMMEDIATE | Self::LENGTH) != 0 => {
                Err(WireError::Flags(all[3].into()))
            }
            3 => {
                let immediate = (all[3] & Self::IMMEDIATE != 0).then(|| be32(&all, 8));
                let has_length = all[3] & Self::LENGTH != 0;
                Ok(Control::Companion { app_ctx, immediate, has_length })
            }
            4 => Ok(Control::Length { app_ctx, length: be64(&all, 8) }),
            other => Err(WireError::Control(other)),
        }
    }
}

/// Any message, as its bytes say. Eager payload stays where it is, from byte [`TMH_BYTES`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireMessage {
    /// Header of an eager message.
    Eager(Tmh),
    /// A rendezvous request.
    Rendezvous(Rendezvous),
    /// The end of a rendezvous, or the answer to *ack wanted*.
    Fin(AppCtx),
    /// Ours.
    Control(Control),
    /// Header of a part of an eager message.
    Fragment(Fragment),
    /// Header of a message of a one-sided operation.
    Rma(RmaHeader),
}

impl WireMessage {
    /// Reads the header of an eager message, and of no other: the short way to the common case.
    #[inline(always)]
    pub fn parse_eager(bytes: &Bytes<'_>) -> Option<Tmh> {
        let tm::Tmh { opcode, app_ctx, tag } = tm::Tmh::parse_of(bytes.first()?, Opcode::Eager)?;
        let is_eager = app_ctx & AppCtx::NOT_EAGER == 0;
        is_eager.then_some(Tmh { opcode, app_ctx: AppCtx(app_ctx), tag: Tag(tag) })
    }

    /// As [`WireMessage::parse_eager`], of a message without any flag.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the number apart")]
    pub(crate) fn parse_plain_eager(bytes: &Bytes<'_>) -> Option<Tmh> {
        // Opcode and flags are compared at once, in the order in which they lie in memory.
        const COMPARED: u64 = u64::from_be(0xff << 56 | AppCtx::FLAGS as u64);
        const EXPECTED: u64 = u64::from_be((Opcode::Eager as u64) << 56);
        let header: [u8; TMH_BYTES] = bytes.first()?;
        let (fixed, tag) = header.split_first_chunk()?;
        if u64::from_ne_bytes(*fixed) & COMPARED != EXPECTED {
            return None;
        }
        let app_ctx = AppCtx(u64::from_be_bytes(*fixed) as u32);
        let tag = Tag(u64::from_be_bytes(*tag.first_chunk()?));
        Some(Tmh { opcode: Opcode::Eager, app_ctx, tag })
    }

    /// Reads any message.
    #[inline]
    pub fn parse(bytes: &Bytes<'_>) -> Result<Self, WireError> {
        let length = bytes.len();
        if bytes.array::<1>(0) == Some([Opcode::NoTag as u8]) {
            match bytes.array(2) {
                Some([kind]) if Fragment::is_kind(kind) => {
                    return Fragment::parse(bytes).map(WireMessage::Fragment);
                }
                Some([kind]) if RmaHeader::is_kind(kind) => {
                    return RmaHeader::parse(bytes).map(WireMessage::Rma);
                }
                _ => {}
            }
            return Control::parse(bytes).map(WireMessage::Control);
        }
        let wrong = MessageKind::Message.of_length(length);
        let tmh = Tmh::parse(&bytes.array(0).ok_or(wrong)?)?;
        match tmh.opcode {
            Opcode::Eager if tmh.app_ctx.0 & AppCtx::NOT_EAGER != 0 => {
                Err(WireError::Flags(tmh.app_ctx.0 & AppCtx::NOT_EAGER))
            }
            Opcode::Eager => Ok(WireMessage::Eager(tmh)),
            Opcode::Rendezvous => Rendezvous::parse(&tmh, bytes).map(WireMessage::Rendezvous),
            Opcode::Fin if length <= FIN_BYTES_MAX => Ok(WireMessage::Fin(tmh.app_ctx.operation())),
            Opcode::Fin => Err(MessageKind::Fin.of_length(length)),
            Opcode::NoTag => Control::parse(bytes).map(WireMessage::Control),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<WireMessage, WireError> {
        WireMessage::parse(&Bytes::from_slice(bytes))
    }

    #[test]
    fn headers_are_those_of_tm_types_h() {
        let tmh = Tmh {
            opcode: Opcode::Eager,
            app_ctx: AppCtx(0x0102_0304),
            tag: Tag(0x1112_1314_1516_1718),
        };
        let bytes = *b"\x03\0\0\0\x01\x02\x03\x04\x11\x12\x13\x14\x15\x16\x17\x18";
        assert_eq!(tmh.emit(), bytes);
        assert_eq!(Tmh::parse(&bytes), Ok(tmh));
        assert_eq!(WireMessage::parse_eager(&Bytes::from_slice(&bytes)), Some(tmh));
        let rvh = Rvh { va: 0x0102_0304_0506_0708, rkey: 0x1112_1314, len: 0x2122_2324 };
        assert_eq!(
            rvh.emit(),
            *b"\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x21\x22\x23\x24"
        );
        assert_eq!(Rvh::parse(&rvh.emit()), rvh);
    }

    #[test]
    fn rendezvous_round_trips_with_long_lengths() {
        for length in [0, 1, 8192, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 40] {
            for immediate in [None, Some(0), Some(7)] {
                let span = RemoteSpan { address: 9, key: 8, length };
                let request = Rendezvous::new(AppCtx::new(3, 511), Tag(5), span, immediate);
                assert_eq!(parse(&request.emit()), Ok(WireMessage::Rendezvous(request)));
            }
        }
    }

    #[test]
    fn a_request_without_our_bytes_is_understood() {
        let span = RemoteSpan { address: 9, key: 8, length: 77 };
        let request = Rendezvous::new(AppCtx(3), Tag(5), span, None);
        assert_eq!(parse(&request.emit()[..32]), Ok(WireMessage::Rendezvous(request)));
    }

    #[test]
    fn control_round_trips() {
        let credit = Control::Credit { messages: 5, bytes: 1 << 33 };
        let app_ctx = AppCtx::new(9, 9);
        let abort = Control::Abort { app_ctx, errno: 14 };
        let companions = [None, Some(0), Some(7)].into_iter().flat_map(|immediate| {
            [false, true].map(|has_length| Control::Companion { app_ctx, immediate, has_length })
        });
        let length = Control::Length { app_ctx, length: 1 << 40 };
        for control in [credit, abort, length].into_iter().chain(companions) {
            assert_eq!(parse(&control.emit()), Ok(WireMessage::Control(control)));
        }
    }

    #[test]
    fn fin_has_16_to_32_bytes() {
        let fin = Tmh { opcode: Opcode::Fin, app_ctx: AppCtx(1).with_ack(), tag: Tag(0) };
        let mut bytes = fin.emit().to_vec();
        assert_eq!(parse(&bytes), Ok(WireMessage::Fin(AppCtx(1))));
        bytes.resize(32, 0);
        assert_eq!(parse(&bytes), Ok(WireMessage::Fin(AppCtx(1))));
        bytes.resize(33, 0);
        assert!(matches!(parse(&bytes), Err(WireError::Length { kind: MessageKind::Fin, .. })));
    }

    #[test]
    fn each_mistake_has_its_error() {
        assert!(matches!(parse(&[]), Err(WireError::Length { .. })));
        assert!(matches!(parse(&[3; 15]), Err(WireError::Length { .. })));
        assert_eq!(parse(&[4; 16]), Err(WireError::Opcode(4)));
        let mut control = Control::Credit { messages: 0, bytes: 0 }.emit();
        control[1] = 2;
        assert_eq!(parse(&control), Err(WireError::Version(2)));
        control[1] = 1;
        control[2] = 7;
        assert_eq!(parse(&control), Err(WireError::Control(7)));
        control[2] = 3;
        control[3] = 4;
        assert_eq!(parse(&control), Err(WireError::Flags(4)));
        let span = RemoteSpan { address: 0, key: 0, length: 50 };
        let request = Rendezvous::new(AppCtx(0), Tag(0), span, None);
        let mut bytes = request.emit();
        bytes[15 + 16] = 51;
        assert_eq!(parse(&bytes), Err(WireError::Lengths { rvh: 51, real: 50 }));
        bytes[15 + 16] = 50;
        bytes[4] = 0x60;
        assert_eq!(parse(&bytes), Err(WireError::Flags(3 << 29)));
        bytes[4] = 0x20;
        bytes[0] = Opcode::Eager as u8;
        assert_eq!(parse(&bytes), Err(WireError::Flags(1 << 29)));
        assert!(matches!(parse(&request.emit()[..40]), Err(WireError::Length { .. })));
    }
}
