//! A scripted device: the test queues its events, and it records the calls of the model.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::collections::VecDeque;

use tagmatch_device::{
    Address, Buffer, Bytes, Device, DeviceError, DownReason, Event, Exposure, Flush, Incoming,
    Limits, Outgoing, PeerId, ReadError, ReadMode, ReadRequest, Refused, TagAdd, TagEvent,
    TagHandle, TagRefused,
};
use tagmatch_model::{Knobs, Model, ModelConfig};

/// The longest message that the device receives, in bytes.
pub const MESSAGE_MAX: usize = 512;
/// The length of the buffer of an entry, in bytes.
pub const ROOM: usize = MESSAGE_MAX - 16;

pub enum DeviceEvent {
    Message(PeerId, Vec<u8>, Option<u32>),
    ReadDone(u64, Buffer, Result<(), ReadError>),
    Up(PeerId),
    Down(PeerId, DownReason),
}

pub struct Script {
    pub events: VecDeque<DeviceEvent>,
    current: Vec<u8>,
    pub sent: Vec<(PeerId, Vec<u8>)>,
    pub reads: VecDeque<ReadRequest>,
    /// The result with which reads end at once; with `None` they wait in `reads`.
    pub reads_end: Option<Result<(), ReadError>>,
    pub refuses: Option<Refused>,
    pub disconnected: Vec<PeerId>,
    /// The peers given to the last `arm`.
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
    with(&ModelConfig::default().knobs(knobs))
}

pub fn with(config: &ModelConfig) -> Model<Script> {
    let script = Script {
        events: VecDeque::new(),
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

/// The bytes that a peer exposes at an address.
pub fn exposed(at: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| (at + n * 7).to_le_bytes()[0]).collect()
}

/// Queues an event of the inner device.
pub fn push_event(model: &mut Model<Script>, events: DeviceEvent) {
    model.inner_mut().events.push_back(events);
}

pub fn message(model: &mut Model<Script>, peer: u32, bytes: Vec<u8>) {
    push_event(model, DeviceEvent::Message(PeerId(peer), bytes, None));
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
        Event::AccessDone(end) => panic!("an access that nobody has begun: {end:?}"),
    };
    Some(event)
}

/// Polls until the model has no work left.
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
        Limits { message_max: MESSAGE_MAX, fragmented_max: 0 }
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

    fn expose(&mut self, _: PeerId, buffer: Buffer) -> Result<Exposure, (Buffer, DeviceError)> {
        Err((buffer, DeviceError::BadBuffer { why: "nothing is exposed here" }))
    }

    fn withdraw(&mut self, _: PeerId, _: tagmatch_device::ExposureId) -> Option<Buffer> {
        None
    }

    fn read(&mut self, mut request: ReadRequest) -> Result<(), (Buffer, ReadError)> {
        match self.reads_end {
            Some(Ok(())) => {
                let length = usize::try_from(request.remote.length).unwrap();
                let bytes = exposed(request.remote.address, length);
                request.into.as_mut_slice().unwrap()[..length].copy_from_slice(&bytes);
                self.events.push_back(DeviceEvent::ReadDone(request.token, request.into, Ok(())));
            }
            Some(Err(error)) => return Err((request.into, error)),
            None => self.reads.push_back(request),
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Event<'_>> {
        Some(match self.events.pop_front()? {
            DeviceEvent::Message(peer, bytes, immediate) => {
                self.current = bytes;
                let bytes = Bytes::from_slice(&self.current);
                Event::Message(Incoming { peer, immediate, through_list: false, bytes })
            }
            DeviceEvent::ReadDone(token, into, result) => Event::ReadDone { token, into, result },
            DeviceEvent::Up(peer) => Event::PeerUp { peer, limits: self.limits() },
            DeviceEvent::Down(peer, reason) => Event::PeerDown { peer, reason },
        })
    }

    fn flush(&mut self, _: PeerId, _: &mut Option<u64>) -> Flush {
        Flush::Done
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.disconnected.push(peer);
        self.events.push_back(DeviceEvent::Down(peer, DownReason::Disconnected));
    }

    fn close(&mut self) {}

    fn arm(&mut self, waiting_to_send: &[PeerId]) -> bool {
        self.armed_for = Some(waiting_to_send.to_vec());
        self.events.is_empty()
    }

    fn has_work(&self) -> bool {
        !self.events.is_empty()
    }

    fn disarm(&mut self) {}
}
