//! A device that says what it is told to, and keeps what it is given.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::collections::VecDeque;

use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, Exposure, Incoming, Limits,
    Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, TagAdd, TagEvent, TagHandle,
    TagRefused,
};
use tagmatch_model::{Knobs, Model, ModelConfig};

/// What it receives at most.
pub const MESSAGE_MAX: usize = 512;
/// A buffer for the list.
pub const ROOM: usize = MESSAGE_MAX - 16;

pub enum Say {
    Message(PeerId, Vec<u8>, Option<u32>),
    ReadDone(u64, Buffer, Result<(), ReadError>),
    Up(PeerId),
    Down(PeerId, DownReason),
}

pub struct Script {
    pub say: VecDeque<Say>,
    current: Vec<u8>,
    pub sent: Vec<(PeerId, Vec<u8>)>,
    pub reads: VecDeque<ReadRequest>,
    /// Reads end at once, like this; without, they wait in `reads`.
    pub reads_end: Option<Result<(), ReadError>>,
    pub refuses: Option<Refused>,
    pub disconnected: Vec<PeerId>,
    /// Peers that the last `arm` was to wait for.
    pub armed_for: Option<Vec<PeerId>>,
}

/// An event that borrows nothing.
#[derive(Debug)]
pub enum Seen {
    Message { peer: PeerId, through_list: bool, bytes: Vec<u8>, immediate: Option<u32> },
    ReadDone(u64, Result<(), ReadError>),
    Up(PeerId),
    Down(PeerId, DownReason),
    Tag(TagEvent),
}

pub fn model(knobs: Knobs) -> Model<Script> {
    with(&ModelConfig { knobs, ..ModelConfig::default() })
}

pub fn with(config: &ModelConfig) -> Model<Script> {
    let script = Script {
        say: VecDeque::new(),
        current: Vec::new(),
        sent: Vec::new(),
        reads: VecDeque::new(),
        reads_end: Some(Ok(())),
        refuses: None,
        disconnected: Vec::new(),
        armed_for: None,
    };
    Model::new(script, config).unwrap()
}

/// Bytes that a peer exposes.
pub fn exposed(at: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (at + n * 7).to_le_bytes()[0]).collect()
}

/// What is said to the model.
pub fn hear(model: &mut Model<Script>, say: Say) {
    model.inner_mut().say.push_back(say);
}

pub fn message(model: &mut Model<Script>, peer: u32, bytes: Vec<u8>) {
    hear(model, Say::Message(PeerId(peer), bytes, None));
}

pub fn poll(model: &mut Model<Script>) -> Option<Seen> {
    let event = match model.poll()? {
        Event::Message(Incoming { peer, immediate, through_list, bytes }) => {
            Seen::Message { peer, through_list, bytes: bytes.to_vec(0), immediate }
        }
        Event::ReadDone { token, result, .. } => Seen::ReadDone(token, result),
        Event::PeerUp { peer, .. } => Seen::Up(peer),
        Event::PeerDown { peer, reason } => Seen::Down(peer, reason),
        Event::Tag(event) => Seen::Tag(event),
    };
    Some(event)
}

/// Polls as long as it has work.
pub fn settle(model: &mut Model<Script>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for _ in 0..10_000 {
        match poll(model) {
            Some(event) => seen.push(event),
            None if !model.has_work() => return seen,
            None => {}
        }
    }
    panic!("the model never comes to rest: {seen:?}");
}

pub fn try_add(
    model: &mut Model<Script>,
    entry: u32,
    tag: u64,
    buffer: Buffer,
    count: u16,
) -> Result<TagHandle, (Buffer, TagRefused)> {
    let add = TagAdd { entry, tag, mask: u64::MAX, buffer, count };
    model.tags().unwrap().add(add)
}

pub fn add(model: &mut Model<Script>, entry: u32, tag: u64, count: u16) -> TagHandle {
    try_add(model, entry, tag, Buffer::zeroed(ROOM), count).unwrap()
}

impl Device for Script {
    fn limits(&self) -> Limits {
        Limits { message_max: MESSAGE_MAX }
    }

    fn address(&self) -> Address {
        Address::from_bytes(&[1]).unwrap()
    }

    fn connect(&mut self, _: &Address) -> Result<PeerId, DeviceError> {
        Ok(PeerId::ONESELF)
    }

    fn peer_address(&self, _: PeerId) -> Option<Address> {
        None
    }

    fn read_mode(&self, _: PeerId) -> ReadMode {
        ReadMode::Direct
    }

    fn send(&mut self, peer: PeerId, message: Outgoing<'_>) -> Result<(), Refused> {
        match self.refuses {
            Some(refused) => Err(refused),
            None => {
                self.sent.push((peer, [message.header, message.payload].concat()));
                Ok(())
            }
        }
    }

    fn expose(&mut self, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        Err((buffer, DeviceError::BadBuffer { why: "nothing is exposed here" }))
    }

    fn withdraw(&mut self, _: tagmatch_device::ExposureId) -> Option<Buffer> {
        None
    }

    fn read(&mut self, mut request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        match self.reads_end {
            Some(Ok(())) => {
                let length = usize::try_from(request.remote.length).unwrap();
                let bytes = exposed(request.remote.address, length);
                request.into.as_mut_slice().unwrap()[..length].copy_from_slice(&bytes);
                self.say.push_back(Say::ReadDone(request.token, request.into, Ok(())));
            }
            Some(Err(error)) => return Err((request.into, error)),
            None => self.reads.push_back(request),
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        Some(match self.say.pop_front()? {
            Say::Message(peer, bytes, immediate) => {
                self.current = bytes;
                let bytes = Bytes::from_slice(&self.current);
                Event::Message(Incoming { peer, immediate, through_list: false, bytes })
            }
            Say::ReadDone(token, into, result) => Event::ReadDone { token, into, result },
            Say::Up(peer) => Event::PeerUp { peer, limits: self.limits() },
            Say::Down(peer, reason) => Event::PeerDown { peer, reason },
        })
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.disconnected.push(peer);
        self.say.push_back(Say::Down(peer, DownReason::Disconnected));
    }

    fn close(&mut self) {}

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.armed_for = Some(waiting_to_send.to_vec());
        self.say.is_empty()
    }

    fn has_work(&self) -> bool {
        !self.say.is_empty()
    }

    fn disarm(&mut self) {}
}
