//! Sends and receives control messages, in a context that no communicator has.

use tagmatch::{Buffer, Tag, TagMask};

use super::control::Control;
use super::wire::length_max;
use crate::net::{Incoming, Mode, Net, Pattern, ProcessId};

/// A message of up to this many bytes is injected: there is no send to keep.
const INJECT_MAX: usize = 4096;

/// The context of control messages.
///
/// All bits of their tag are set that the transport leaves free. So the tag is the same with all
/// layouts, and processes with different settings can tell each other. No other message has it: in
/// each layout its context is the last of those that belong to
/// [`IdLayout::control`](crate::ids::IdLayout::control).
pub(super) struct ControlContext<N: Net> {
    tag: Tag,
    pattern: Pattern,
    incoming: Incoming<N::Receive>,
}

impl<N: Net> ControlContext<N> {
    /// `free`: see [`Net::free_tag_bits`].
    pub(super) fn new((free, given): (TagMask, Tag)) -> Self {
        let tag = Tag(free.0 | given.0);
        let pattern = Pattern { tag, mask: free, from: None };
        ControlContext { tag, pattern, incoming: Incoming::new() }
    }

    /// Takes in what has arrived: how many messages were matched, and those that are complete.
    pub(super) fn receive(&mut self, net: &mut N) -> (usize, Vec<(ProcessId, Control)>) {
        let length_max = length_max(net.processes());
        let mut matched = 0;
        while self.incoming.take(net, self.pattern, length_max) {
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
                let _ = net.inject(process, self.tag, &bytes);
            } else {
                // Dropping the handle doesn't stop the send.
                drop(self.send_kept(net, process, bytes.clone()));
            }
        }
    }

    /// Sends a message as bytes, and returns the send.
    pub(super) fn send_kept(&self, net: &mut N, to: ProcessId, bytes: Vec<u8>) -> N::Send {
        net.send(to, self.tag, Buffer::from(bytes), Mode::Standard)
    }
}
