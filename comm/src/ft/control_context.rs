//! Sends and receives control messages, in a context that no communicator has.

use std::collections::VecDeque;

use tagmatch::{Buffer, Tag, TagLayout, TagMask};

use crate::ids::IdLayout;
use crate::net::{Arrived, Mode, Net, Pattern, ProcessId};

use super::control::Control;
use super::wire::length_max;

/// A message of up to this many bytes is injected: there is no send to keep.
const INJECT_MAX: usize = 4096;

/// The context of control messages.
pub(super) struct ControlContext<N: Net> {
    /// The tag of this process's messages; none if its rank doesn't fit into a tag.
    tag: Option<Tag>,
    pattern: Pattern,
    /// Receives under way, in the order of their messages.
    incoming: VecDeque<(ProcessId, N::Receive)>,
}

impl<N: Net> ControlContext<N> {
    pub(super) fn new(own: ProcessId, ids: IdLayout, tags: TagLayout) -> Self {
        let context = u64::from(ids.control().bits());
        let pack = |source: u32| tags.pack(context, source.into(), 0).ok();
        let mask = TagMask(!tags.source_mask().0);
        let pattern = Pattern { tag: pack(0).unwrap_or(Tag(0)), mask, from: None };
        ControlContext { tag: pack(own.0), pattern, incoming: VecDeque::new() }
    }

    /// Takes in what has arrived: how many messages were matched, and those that are complete.
    pub(super) fn receive(&mut self, net: &mut N) -> (usize, Vec<(ProcessId, Control)>) {
        let mut matched = 0;
        while let Some((message, envelope)) = net.matched_probe(self.pattern) {
            matched += 1;
            let fits = envelope.length <= length_max(net.processes());
            let length = usize::try_from(envelope.length).ok().filter(|_| fits);
            // A message from a process that is not admitted, or one that is too long, is dropped
            // here and so discarded.
            if let (Some(from), Some(length)) = (envelope.from, length) {
                let receive = net.receive_message(message, Buffer::zeroed(length));
                self.incoming.push_back((from, receive));
            }
        }
        // Messages are delivered in each sender's order. So a long message that is not complete yet
        // delays the later ones of its sender.
        let (mut held_up, mut complete) = (Vec::new(), Vec::new());
        for _ in 0..self.incoming.len() {
            let Some((from, mut receive)) = self.incoming.pop_front() else { break };
            let is_next = !held_up.contains(&from);
            match if is_next { net.test_receive(&mut receive) } else { None } {
                None => {
                    held_up.push(from);
                    self.incoming.push_back((from, receive));
                }
                Some(Ok(Arrived { buffer, .. })) => {
                    let control = Control::parse(&buffer, from, net);
                    complete.extend(control.map(|control| (from, control)));
                }
                // The sender is down.
                Some(Err(_)) => {}
            }
        }
        (matched, complete)
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
