//! An engine over a device whose peers, and whose NIC, do what a test says.

#![allow(unreachable_pub, dead_code, reason = "each test uses its share")]

use std::collections::VecDeque;

use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, Exposure, ExposureId, Flush,
    Incoming, Limits, Outgoing, PeerId, PeerNumbers, ReadError, ReadMode, ReadRequest, Refused,
    TagAdd, TagCaps, TagEvent, TagHandle, TagList, TagRefused,
};
use tagmatch_fallback::wire::{AppCtx, Opcode, Tmh};
use tagmatch_fallback::{Amount, CreditConfig, Engine, EngineConfig, MatchEngine, PeerFault};
use tagmatch_soft::{Pattern, Tag, TagMask};

/// The peers that went down and are remembered.
pub const REMEMBERED: usize = 4;
const LIMITS: Limits = Limits { message_max: 4096, fragmented_max: 0 };

/// An event that the scripted device reports at its next poll.
pub enum Report {
    Up(PeerId),
    Message(PeerId, Vec<u8>),
    /// A message for which the list was searched in vain.
    Unmatched(PeerId, Vec<u8>),
    List(TagEvent),
    Down(PeerId),
    DownFor(PeerId, DownReason),
}

/// A device whose peers do what a test says.
#[derive(Default)]
pub struct Script {
    pub numbers: PeerNumbers,
    pub reports: VecDeque<Report>,
    current: Vec<u8>,
    /// The peers to which a message was sent.
    pub sent_to: Vec<PeerId>,
    pub disconnected: Vec<PeerId>,
    /// Messages that each peer is said not to have got.
    pub lost: usize,
    pub keeps_all: bool,
    pub list: Option<ScriptList>,
    pub is_armed: bool,
}

/// A NIC's list that answers by the reports of its test.
#[derive(Default)]
pub struct ScriptList {
    /// By handle: the numbers and buffers of the entries.
    pub entries: Vec<(u32, Option<Buffer>)>,
    /// The handles of the entries that were deleted with an answer.
    pub deletes: Vec<u32>,
    /// It gives no buffer back, as if it had matched each entry.
    pub keeps_buffers: bool,
}

impl ScriptList {
    /// The buffer of an entry, for the report that gives it back.
    pub fn take(&mut self, handle: usize) -> Buffer {
        self.entries[handle].1.take().expect("the engine has the buffer")
    }
}

impl TagList for ScriptList {
    fn caps(&self) -> TagCaps {
        TagCaps { slots: 16, operations: 64, read_max: 1 << 20, sync_every: 1000, first_count: 0 }
    }

    fn add(&mut self, add: TagAdd) -> Result<TagHandle, (Buffer, TagRefused)> {
        self.entries.push((add.entry, Some(add.buffer)));
        Ok(TagHandle(u32::try_from(self.entries.len() - 1).unwrap()))
    }

    fn delete(&mut self, handle: TagHandle, answer: bool, _: u16) -> Result<(), TagRefused> {
        self.deletes.extend(answer.then_some(handle.0));
        Ok(())
    }

    fn sync(&mut self, _: u16) -> Result<(), TagRefused> {
        Ok(())
    }

    fn reclaim(&mut self, handle: TagHandle) -> Option<Buffer> {
        self.entries[handle.0 as usize].1.take_if(|_| !self.keeps_buffers)
    }
}

impl Device for Script {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn address(&self) -> Address {
        Address::from_bytes(&[1]).unwrap()
    }

    fn connect(&mut self, _: &Address) -> Result<PeerId, DeviceError> {
        self.numbers.give()
    }

    fn peer_address(&self, _: PeerId) -> Option<Address> {
        None
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Unknown
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        if !message.payload.is_empty() {
            self.sent_to.push(peer);
        }
        Ok(())
    }

    fn expose(&mut self, _: PeerId, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        Err((buffer, DeviceError::too_many_exposed()))
    }

    fn withdraw(&mut self, _: PeerId, _: ExposureId) -> Option<Buffer> {
        None
    }

    fn read(&mut self, request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        Err((request.into, ReadError::PeerDown))
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        let report = self.reports.pop_front()?;
        let through_list = matches!(report, Report::Unmatched(..));
        Some(match report {
            Report::Up(peer) => Event::PeerUp { peer, limits: LIMITS },
            Report::Message(peer, bytes) | Report::Unmatched(peer, bytes) => {
                self.current = bytes;
                let bytes = Bytes::from_slice(&self.current);
                Event::Message(Incoming { peer, immediate: None, through_list, bytes })
            }
            Report::List(event) => Event::Tag(event),
            Report::Down(peer) => Event::PeerDown { peer, reason: DownReason::Gone },
            Report::DownFor(peer, reason) => Event::PeerDown { peer, reason },
        })
    }

    fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
        match self.lost {
            0 => Flush::Done,
            messages => Flush::Lost { messages },
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.disconnected.push(peer);
    }

    fn forget(&mut self, peer: PeerId) -> bool {
        if !self.keeps_all {
            self.numbers.give_back(peer);
        }
        !self.keeps_all
    }

    fn close(&mut self) {}

    fn tags(&mut self) -> Option<&mut dyn TagList> {
        self.list.as_mut().map(|list| list as &mut dyn TagList)
    }

    fn arm(&mut self, _: &[PeerId]) -> bool {
        self.is_armed = true;
        true
    }

    fn has_work(&self) -> bool {
        !self.reports.is_empty()
    }

    fn disarm(&mut self) {
        self.is_armed = false;
    }
}

/// An engine over a script.
pub fn engine() -> Engine<Script> {
    engine_with(None)
}

/// An engine over a script whose NIC has a list.
pub fn engine_with_list() -> Engine<Script> {
    engine_with(Some(ScriptList::default()))
}

fn engine_with(list: Option<ScriptList>) -> Engine<Script> {
    let mut script = Script { list, ..Script::default() };
    assert_eq!(script.numbers.give().unwrap(), PeerId::ONESELF);
    script.reports.push_back(Report::Up(PeerId::ONESELF));
    let plenty = Amount { messages: 1 << 20, bytes: 1 << 30 };
    let first = Amount { messages: 16, bytes: 4096 };
    let credit = CreditConfig { pool: plenty, first, peer_max: first };
    let config = EngineConfig {
        eager_max: 1024,
        fragmented_max: 0,
        operations_max: 16,
        credit,
        nic_threshold: 0,
        source_bits: TagMask::ANY,
        departed_max: REMEMBERED,
        seed: 7,
    };
    let mut engine = Engine::new(script, &config).unwrap();
    assert_eq!(engine.progress(), 1);
    engine
}

/// A peer that connects.
pub fn arrive(engine: &mut Engine<Script>) -> PeerId {
    let device = engine.device_mut();
    let peer = device.numbers.give().unwrap();
    device.reports.push_back(Report::Up(peer));
    engine.progress();
    peer
}

/// A message comes past the list.
pub fn say(engine: &mut Engine<Script>, peer: PeerId, tag: u64) {
    report(engine, Report::Message(peer, eager(tag)));
}

/// A message with 7 bytes of payload.
pub fn eager(tag: u64) -> Vec<u8> {
    let header = Tmh { opcode: Opcode::Eager, app_ctx: AppCtx::default(), tag: Tag(tag) }.emit();
    [&header[..], b"payload"].concat()
}

/// The device reports something, and the engine takes it in.
pub fn report(engine: &mut Engine<Script>, report: Report) {
    engine.device_mut().reports.push_back(report);
    engine.progress();
}

/// A peer goes down.
pub fn leave(engine: &mut Engine<Script>, peer: PeerId) {
    report(engine, Report::Down(peer));
}

/// So many peers come and go that all that can be forgotten is; gives the highest of their indices.
pub fn pass_by(engine: &mut Engine<Script>, peers: usize) -> usize {
    let pass = |_| {
        let peer = arrive(engine);
        leave(engine, peer);
        peer.index()
    };
    (0..peers).map(pass).max().unwrap()
}

/// Whether nothing is known of a peer any more.
pub fn is_forgotten(engine: &Engine<Script>, peer: PeerId) -> bool {
    engine.peer_fault(peer) == Some(PeerFault::Forgotten)
}

/// All messages with a tag.
pub fn any(tag: u64) -> Pattern {
    Pattern::new(Tag(tag), TagMask::EXACT)
}
