//! Sends and receives control messages, in a context that no communicator has.

use tagmatch::{Buffer, Tag, TagMask};

use crate::net::{Incoming, Mode, Net, Pattern, ProcessId};

use super::control::Control;
use super::wire::length_max;

/// A message of up to this many bytes is injected: there is no send to keep.
const INJECT_MAX: usize = 4096;

/// The tag of control messages. It is the same with all layouts, so that processes with different
/// settings can tell each other. No other message has it: in each layout its context is the last
/// of those that belong to [`IdLayout::control`](crate::ids::IdLayout::control).
const TAG: Tag = Tag(u64::MAX);
const PATTERN: Pattern = Pattern { tag: TAG, mask: TagMask::EXACT, from: None };

/// The context of control messages.
pub(super) struct ControlContext<N: Net> {
    incoming: Incoming<N::Receive>,
}

impl<N: Net> ControlContext<N> {
    pub(super) fn new() -> Self {
        ControlContext { incoming: Incoming::new() }
    }

    /// Takes in what has arrived: how many messages were matched, and those that are complete.
    pub(super) fn receive(&mut self, net: &mut N) -> (usize, Vec<(ProcessId, Control)>) {
        let length_max = length_max(net.processes());
        let mut matched = 0;
        while self.incoming.take(net, PATTERN, length_max) {
            matched += 1;
        }
        let complete = self.incoming.complete(net).into_iter();
        let parse = |(from, bytes): (_, Buffer)| Some((from, Control::parse(&bytes, from, net)?));
        (matched, complete.filter_map(parse).collect())
    }

    /// Sends a message. If the receiver is down, the message is lost, which does no harm.
    pub(super) fn send(&self, net: &mut N, to: ProcessId, control: &Control) {
        self.send_all(net, [to], control);
    }

    /// Sends a message to each of these processes.
    pub(super) fn send_all(
        &self,
        net: &mut N,
        to: impl IntoIterator<Item = ProcessId>,
        control: &Control,
    ) {
        let bytes = control.to_bytes(net);
        for process in to {
            if bytes.len() <= INJECT_MAX {
                let _ = net.inject(process, TAG, &bytes);
            } else {
                // Dropping the handle doesn't stop the send.
                drop(self.send_kept(net, process, bytes.clone()));
            }
        }
    }

    /// Sends a message as bytes, and returns the send.
    pub(super) fn send_kept(&self, net: &mut N, to: ProcessId, bytes: Vec<u8>) -> N::Send {
        net.send(to, TAG, Buffer::from(bytes), Mode::Standard)
    }
}
