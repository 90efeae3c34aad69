//! Sends and receives control messages, in a context that no communicator has.

use std::cell::RefCell;

use tagmatch::{Buffer, Tag, TagMask};

use super::control::Control;
use super::wire::length_max;
use crate::net::{Incoming, Mode, Net, NetError, Pattern, ProcessId};

/// A message of up to this many bytes is injected: there is no send to keep.
const INJECT_MAX: usize = 1024;

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
    /// The sends that have not ended. Each holds its message, as the transport would anyway.
    sends: RefCell<Vec<KeptSend<N>>>,
    /// See [`failure`](Self::failure).
    failure: RefCell<Option<String>>,
}

struct KeptSend<N: Net> {
    to: ProcessId,
    send: N::Send,
    /// Whether this process waits for the end.
    is_awaited: bool,
}

impl<N: Net> ControlContext<N> {
    /// `free`: see [`Net::free_tag_bits`].
    pub(super) fn new((free, given): (TagMask, Tag)) -> Self {
        let tag = Tag(free.0 | given.0);
        let pattern = Pattern { tag, mask: free, from: None };
        let incoming = Incoming::new();
        let sends = RefCell::default();
        ControlContext { tag, pattern, incoming, sends, failure: RefCell::default() }
    }

    /// Takes in what has arrived: how many messages were matched, and those that are complete.
    pub(super) fn receive(&mut self, net: &mut N) -> (usize, Vec<(ProcessId, Control)>) {
        self.end_sends(net);
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
                if let Err(error) = net.inject(process, self.tag, &bytes) {
                    self.note_unsent(net, process, &error);
                }
            } else {
                self.keep(net, process, bytes.clone(), false);
            }
        }
    }

    /// Sends a message whose end [`has_awaited`](Self::has_awaited) tells.
    pub(super) fn send_awaited(&self, net: &mut N, to: ProcessId, control: &Control) {
        let bytes = control.to_bytes(net);
        self.keep(net, to, bytes, true);
    }

    fn keep(&self, net: &mut N, to: ProcessId, bytes: Vec<u8>, is_awaited: bool) {
        let send = net.send(to, self.tag, Buffer::from(bytes), Mode::Standard);
        self.sends.borrow_mut().push(KeptSend { to, send, is_awaited });
    }

    /// Whether a message of [`send_awaited`](Self::send_awaited) has not left.
    pub(super) fn has_awaited(&self, net: &mut N) -> bool {
        self.end_sends(net);
        self.sends.borrow().iter().any(|send| send.is_awaited)
    }

    /// Drops the sends that have ended.
    fn end_sends(&self, net: &mut N) {
        self.sends.borrow_mut().retain_mut(|KeptSend { to, send, .. }| {
            let ended = net.test_send(send);
            if let Some(Err(failed)) = &ended {
                self.note_unsent(net, *to, &failed.error);
            }
            ended.is_none()
        });
    }

    /// Takes note that a message was not sent. If its receiver is down, that does no harm.
    ///
    /// Otherwise the receiver may wait for the message for ever, and this process for the answer.
    /// So this process has to leave its job: see [`failure`](Self::failure). A receiver in another
    /// job is given up.
    pub(super) fn note_unsent(&self, net: &mut N, to: ProcessId, error: &NetError) {
        if matches!(error, NetError::Down(_)) {
            return;
        }
        if to.0 >= net.processes() {
            log::warn!("process {} of another job is given up: not sent to it: {error}", to.0);
            return net.give_up(to);
        }
        self.lack(|| format!("a message to process {} could not be sent: {error}", to.0));
    }

    /// Sets the [`failure`](Self::failure), unless there is one already.
    pub(super) fn lack(&self, why: impl FnOnce() -> String) {
        self.failure.borrow_mut().get_or_insert_with(why);
    }

    /// Why this process can take no part in its job any more, if it can't send what others wait
    /// for.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}
