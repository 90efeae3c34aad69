//! A transport whose messages and losses a test makes by hand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tagmatch::{Buffer, Tag, TagMask};

use crate::names::TestDirectory;
use crate::net::{Arrived, Directory, Envelope, Mode, Net, NetError, NetFailed, Pattern};
use crate::net::{ProcessId, ProcessName};

pub(super) struct ScriptedNet {
    pub(super) directory: TestDirectory,
    incoming: VecDeque<(ProcessId, Vec<u8>)>,
    /// The messages that were sent since this was last taken.
    pub(super) sent: Vec<(ProcessId, Vec<u8>)>,
    /// The processes that are down, each with whether it has left in order.
    down: BTreeMap<ProcessId, bool>,
    unreported: Vec<ProcessId>,
    pub(super) given_up: BTreeSet<ProcessId>,
}

impl ScriptedNet {
    pub(super) fn new(directory: TestDirectory) -> Self {
        ScriptedNet {
            directory,
            incoming: VecDeque::new(),
            sent: Vec::new(),
            down: BTreeMap::new(),
            unreported: Vec::new(),
            given_up: BTreeSet::new(),
        }
    }

    pub(super) fn arrive(&mut self, from: ProcessId, bytes: &[u8]) {
        self.incoming.push_back((from, bytes.to_vec()));
    }

    pub(super) fn lose(&mut self, process: ProcessId, has_left: bool) {
        self.down.insert(process, has_left);
        self.unreported.push(process);
    }
}

impl Directory for ScriptedNet {
    fn processes(&self) -> u32 {
        self.directory.processes()
    }

    fn own(&self) -> ProcessId {
        self.directory.own()
    }

    fn name(&self, process: ProcessId) -> Option<ProcessName> {
        self.directory.name(process)
    }

    fn admit(&mut self, name: &ProcessName) -> Result<ProcessId, NetError> {
        self.directory.admit(name)
    }
}

/// The only messages are control messages, so every pattern of theirs matches the oldest one.
impl Net for ScriptedNet {
    type Send = Option<Buffer>;
    type Receive = Option<Result<Arrived, NetFailed>>;
    type Message = (ProcessId, Vec<u8>);

    fn free_tag_bits(&self) -> (TagMask, Tag) {
        (TagMask::EXACT, Tag(0))
    }

    fn send(&mut self, to: ProcessId, _: Tag, data: Buffer, _: Mode) -> Option<Buffer> {
        self.sent.push((to, data.to_vec()));
        Some(data)
    }

    fn inject(&mut self, to: ProcessId, _: Tag, data: &[u8]) -> Result<(), NetError> {
        self.sent.push((to, data.to_vec()));
        Ok(())
    }

    fn receive(&mut self, _: Pattern, buffer: Buffer) -> Self::Receive {
        Some(Err(NetFailed { error: NetError::Cancelled, buffer }))
    }

    fn test_send(&mut self, send: &mut Option<Buffer>) -> Option<Result<Buffer, NetFailed>> {
        send.take().map(Ok)
    }

    fn test_receive(&mut self, receive: &mut Self::Receive) -> Self::Receive {
        receive.take()
    }

    fn cancel(&mut self, _: &mut Self::Receive) {}

    fn probe(&mut self, _: Pattern) -> Option<Envelope> {
        None
    }

    fn matched_probe(&mut self, pattern: Pattern) -> Option<(Self::Message, Envelope)> {
        if pattern.mask != TagMask::EXACT {
            return None;
        }
        let message = self.incoming.pop_front()?;
        let length = message.1.len() as u64;
        let envelope = Envelope { from: Some(message.0), tag: pattern.tag, length };
        Some((message, envelope))
    }

    fn receive_message(&mut self, (from, bytes): Self::Message, _: Buffer) -> Self::Receive {
        let length = bytes.len() as u64;
        let envelope = Envelope { from: Some(from), tag: Tag(0), length };
        Some(Ok(Arrived { envelope, buffer: Buffer::from(bytes) }))
    }

    fn is_down(&self, process: ProcessId) -> bool {
        self.down.contains_key(&process)
    }

    fn watch(&mut self, _: ProcessId) {}

    fn has_left(&self, process: ProcessId) -> bool {
        self.down.get(&process) == Some(&true)
    }

    fn give_up(&mut self, process: ProcessId) {
        self.given_up.insert(process);
    }

    fn take_down(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.unreported)
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn progress(&mut self) -> usize {
        0
    }
}
