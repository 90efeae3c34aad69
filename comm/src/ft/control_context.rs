//! Sends and receives control messages, in a context that no communicator has.

use tagmatch::{Buffer, Tag, TagLayout, TagMask};

use crate::ids::IdLayout;
use crate::net::{Incoming, Mode, Net, Pattern, ProcessId};

use super::control::Control;
use super::wire::length_max;

/// A message of up to this many bytes is injected: there is no send to keep.
const INJECT_MAX: usize = 4096;

/// The context of control messages.
pub(super) struct ControlContext<N: Net> {
    /// The tag of this process's messages; none if its rank doesn't fit into a tag.
    tag: Option<Tag>,
    pattern: Pattern,
    incoming: Incoming<N::Receive>,
}

impl<N: Net> ControlContext<N> {
    pub(super) fn new(own: ProcessId, ids: IdLayout, tags: TagLayout) -> Self {
        let context = u64::from(ids.control().bits());
        let pack = |source: u32| tags.pack(context, source.into(), 0).ok();
        let mask = TagMask(!tags.source_mask().0);
        let pattern = Pattern { tag: pack(0).unwrap_or(Tag(0)), mask, from: None };
        ControlContext { tag: pack(own.0), pattern, incoming: Incoming::new() }
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
        let Some(tag) = self.tag else { return };
        let bytes = control.to_bytes(net);
        for process in to {
            if bytes.len() <= INJECT_MAX {
                let _ = net.inject(process, tag, &bytes);
            } else {
                // Dropping the handle doesn't stop the send.
                drop(net.send(process, tag, Buffer::from(bytes.clone()), Mode::Standard));
            }
        }
    }
}
