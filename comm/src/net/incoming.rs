//! Receives of messages that matched probes take. The services of a process, which expect messages
//! of any process at any time, receive so.

use std::collections::VecDeque;

use tagmatch::Buffer;

use super::transport::Net;
use crate::net_values::{Arrived, NetError, NetFailed, Pattern, ProcessId};

/// Receives under way, in the order of their messages. `R`: a transport's receive.
#[derive(Debug)]
pub(crate) struct Incoming<R>(VecDeque<(ProcessId, R)>);

impl<R> Incoming<R> {
    pub(crate) fn new() -> Self {
        Incoming(VecDeque::new())
    }

    /// Takes the oldest unexpected message that matches, and begins to receive it. Returns whether
    /// there was one. A message of more than `length_max` bytes, or of a process that is not
    /// admitted, is discarded.
    pub(crate) fn take<N>(&mut self, net: &mut N, pattern: Pattern, length_max: u64) -> bool
    where
        N: Net<Receive = R>,
    {
        let Some((message, envelope)) = net.matched_probe(pattern) else { return false };
        let fits = envelope.length <= length_max;
        let length = usize::try_from(envelope.length).ok().filter(|_| fits);
        if let (Some(from), Some(length)) = (envelope.from, length) {
            self.0.push_back((from, net.receive_message(message, Buffer::zeroed(length))));
        }
        true
    }

    /// The messages that are complete, each sender's in order. So a long message that is not
    /// complete yet delays the later ones of its sender.
    ///
    /// If a message could not be received although its sender lives, this process doesn't know what
    /// it was told. It gives up the sender.
    pub(crate) fn complete<N: Net<Receive = R>>(
        &mut self,
        net: &mut N,
    ) -> Vec<(ProcessId, Buffer)> {
        let mut held_up = Vec::new();
        let mut complete = Vec::new();
        let mut lost = Vec::new();
        self.0.retain_mut(|(from, receive)| {
            let ended = if held_up.contains(from) { None } else { net.test_receive(receive) };
            match ended {
                None => held_up.push(*from),
                Some(Ok(Arrived { buffer, .. })) => complete.push((*from, buffer)),
                Some(Err(NetFailed { error: NetError::Down(_), .. })) => {}
                Some(Err(NetFailed { error, .. })) => {
                    log::warn!("process {} is given up: a message was lost: {error}", from.0);
                    lost.push(*from);
                }
            }
            held_up.contains(from)
        });
        for from in lost {
            net.give_up(from);
        }
        complete
    }
}
