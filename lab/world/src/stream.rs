//! A TCP connection in memory: what each end's machine holds, and what is under way between them.
//!
//! Nothing moves by itself. [`Connection::moves`] lists what the network may do next, and the world
//! draws one of these.

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::time::Duration;

use tagmatch_testkit::random::Random;

/// How long the kernel sends again what nobody acknowledges (`tcp_retries2`, tcp(7)).
const SEND_AGAIN_TIME: Duration = Duration::from_secs(924);

/// How far the end of one direction is, as `shutdown(2)` or `close(2)` has begun it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fin {
    No,
    /// It goes out behind the bytes.
    Queued,
    Delivered,
    Acknowledged,
}

/// How much an end's machine holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Bytes that are not acknowledged.
    pub(crate) sent_max: usize,
    /// Bytes that the program has not received.
    pub(crate) received_max: usize,
    /// How long an acknowledgement takes.
    pub(crate) acknowledgement_time: Duration,
}

/// One end.
pub(crate) struct End {
    /// The machine that holds this end's bytes.
    pub(crate) machine: usize,
    pub(crate) address: SocketAddrV4,
    buffers: Buffers,
    /// Accepted from the program, and not at the other machine.
    unsent: VecDeque<u8>,
    /// At the other machine, since when, and with their acknowledgements under way.
    unacknowledged: VecDeque<(usize, Duration)>,
    received: VecDeque<u8>,
    fin: Fin,
    has_shut_receiving: bool,
    /// No process has it open.
    is_closed: bool,
    is_reset: bool,
    /// The error that the next call returns, once.
    error: Option<i32>,
    /// The bytes that were not acknowledged when the connection was reset.
    lost: usize,
    /// When the other machine has answered last.
    heard_at: Duration,
    /// After so long without an answer an idle connection fails.
    pub(crate) keep_alive: Option<Duration>,
}

/// The steps that the network may take next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// The request to connect arrives.
    Establish,
    /// Bytes of this side arrive.
    Deliver(usize),
    /// The acknowledgement of bytes of this side arrives.
    Acknowledge(usize),
    /// The end of this side's stream arrives.
    DeliverEnd(usize),
    AcknowledgeEnd(usize),
}

impl Move {
    /// The end whose stream moves.
    fn side(self) -> usize {
        match self {
            Move::Establish => 0,
            Move::Deliver(side)
            | Move::Acknowledge(side)
            | Move::DeliverEnd(side)
            | Move::AcknowledgeEnd(side) => side,
        }
    }
}

/// The answer of `TCP_INFO`.
pub(crate) struct Info {
    pub(crate) is_over: bool,
    pub(crate) is_awaited: bool,
    pub(crate) age: Duration,
}

/// A connection. The first end has called.
pub(crate) struct Connection {
    pub(crate) ends: [End; 2],
    pub(crate) is_established: bool,
}

impl End {
    pub(crate) fn new(machine: usize, address: SocketAddrV4, buffers: Buffers) -> Self {
        End {
            machine,
            address,
            buffers,
            unsent: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            received: VecDeque::new(),
            fin: Fin::No,
            has_shut_receiving: false,
            is_closed: false,
            is_reset: false,
            error: None,
            lost: 0,
            heard_at: Duration::ZERO,
            keep_alive: None,
        }
    }

    fn room(&self) -> usize {
        self.buffers.sent_max.saturating_sub(self.unsent.len() + self.unacknowledged_bytes())
    }

    fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged.iter().map(|(count, _)| count).sum()
    }

    /// When the next acknowledgement arrives.
    fn acknowledged_at(&self) -> Option<Duration> {
        let (_, delivered_at) = self.unacknowledged.front()?;
        (!self.is_reset).then_some(*delivered_at + self.buffers.acknowledgement_time)
    }

    fn window(&self) -> usize {
        self.buffers.received_max.saturating_sub(self.received.len())
    }

    /// Ends this end with an error. What it has received stays.
    pub(crate) fn reset(&mut self, errno: i32) {
        if !self.is_reset {
            self.lost = self.outstanding();
            self.is_reset = true;
            self.error = Some(errno);
            self.unsent.clear();
            self.unacknowledged.clear();
        }
    }

    /// As `SIOCOUTQ` counts: the end of the stream is one more.
    fn outstanding(&self) -> usize {
        let fin = usize::from(matches!(self.fin, Fin::Queued | Fin::Delivered));
        self.unsent.len() + self.unacknowledged_bytes() + fin
    }
}

impl Connection {
    pub(crate) fn new(ends: [End; 2]) -> Self {
        Connection { ends, is_established: false }
    }

    /// No process has an end open, and nothing is under way.
    pub(crate) fn is_gone(&self) -> bool {
        self.ends.iter().all(|end| end.is_closed && (end.is_reset || end.fin == Fin::Acknowledged))
    }

    pub(crate) fn send(&mut self, side: usize, bytes: &[u8]) -> Result<usize, i32> {
        let end = &mut self.ends[side];
        if let Some(errno) = end.error.take() {
            return Err(errno);
        }
        if end.is_reset || end.fin != Fin::No {
            return Err(libc::EPIPE);
        }
        if !self.is_established {
            return Err(libc::EAGAIN);
        }
        let count = bytes.len().min(end.room());
        if count == 0 && !bytes.is_empty() {
            return Err(libc::EAGAIN);
        }
        end.unsent.extend(&bytes[..count]);
        Ok(count)
    }

    /// At most `length` bytes; none at the end of the stream.
    pub(crate) fn receive(&mut self, side: usize, length: usize) -> Result<Vec<u8>, i32> {
        let is_at_end = self.has_heard_end(side);
        let end = &mut self.ends[side];
        let count = length.min(end.received.len());
        if count > 0 {
            return Ok(end.received.drain(..count).collect());
        }
        if let Some(errno) = end.error.take() {
            return Err(errno);
        }
        if end.is_reset || end.has_shut_receiving || is_at_end {
            return Ok(Vec::new());
        }
        Err(libc::EAGAIN)
    }

    fn has_heard_end(&self, side: usize) -> bool {
        self.ends[1 - side].fin >= Fin::Delivered
    }

    pub(crate) fn shut_down(&mut self, side: usize, how: i32) -> Result<(), i32> {
        let end = &mut self.ends[side];
        if end.is_reset || !self.is_established {
            return Err(libc::ENOTCONN);
        }
        if how != libc::SHUT_RD && end.fin == Fin::No {
            end.fin = Fin::Queued;
        }
        end.has_shut_receiving |= how != libc::SHUT_WR;
        Ok(())
    }

    /// The last process closes an end. Received bytes that nobody will take reset the connection.
    pub(crate) fn close(&mut self, side: usize) {
        let is_established = self.is_established;
        let end = &mut self.ends[side];
        end.is_closed = true;
        let has_unread = !end.received.is_empty();
        if end.fin == Fin::No {
            end.fin = Fin::Queued;
        }
        if has_unread || !is_established || end.is_reset {
            end.reset(libc::ECONNRESET);
            self.ends[1 - side].reset(libc::ECONNRESET);
        }
    }

    pub(crate) fn has_input(&self, side: usize) -> bool {
        let end = &self.ends[side];
        let has_ended = end.is_reset || end.has_shut_receiving || self.has_heard_end(side);
        !end.received.is_empty() || end.error.is_some() || has_ended
    }

    pub(crate) fn has_room(&self, side: usize) -> bool {
        let end = &self.ends[side];
        let has_ended = end.is_reset || end.fin != Fin::No;
        has_ended || (self.is_established && end.room() > 0)
    }

    pub(crate) fn is_reset(&self, side: usize) -> bool {
        self.ends[side].is_reset
    }

    pub(crate) fn outstanding(&self, side: usize) -> usize {
        let end = &self.ends[side];
        if end.is_reset { end.lost } else { end.outstanding() }
    }

    /// The answer of `TCP_INFO` at a time, where one machine is silent.
    pub(crate) fn info_of_silent(&self, side: usize, now: Duration) -> Info {
        let end = &self.ends[side];
        Info {
            is_over: end.is_reset || (end.fin == Fin::Acknowledged && self.has_heard_end(side)),
            is_awaited: end.outstanding() > 0,
            age: now.saturating_sub(end.heard_at),
        }
    }

    /// The answer of `TCP_INFO` at a time. While a window is shut, it asks now and then whether it
    /// is still so, at times that nothing is known about.
    pub(crate) fn info(&mut self, side: usize, now: Duration, random: &mut Random) -> Info {
        let mut info = self.info_of_silent(side, now);
        let is_shut = self.ends[1 - side].window() == 0;
        let end = &mut self.ends[side];
        if !end.unsent.is_empty() && is_shut && end.unacknowledged.is_empty() {
            info.is_awaited = random.chance(1, 4);
            // The answer comes at once, and earlier ones came while nobody looked.
            if info.is_awaited || random.chance(1, 2) {
                end.heard_at = now;
            }
        }
        info
    }

    /// When the kernel of this side gives up, if the other machine is silent since a moment: by its
    /// keep-alives, or by the last attempt to send again.
    pub(crate) fn fails_at(&self, side: usize, silent_since: Duration) -> Option<Duration> {
        let end = &self.ends[side];
        if !self.is_established || end.is_reset || end.is_closed {
            return None;
        }
        let patience = if end.outstanding() > 0 { Some(SEND_AGAIN_TIME) } else { end.keep_alive };
        Some(silent_since.max(end.heard_at) + patience?)
    }

    /// When the next acknowledgement arrives.
    pub(crate) fn acknowledged_at(&self) -> Option<Duration> {
        self.ends.iter().filter_map(End::acknowledged_at).min()
    }

    /// The steps that the network may take.
    pub(crate) fn moves(&self, now: Duration, moves: &mut Vec<Move>) {
        if !self.is_established {
            if !self.ends[0].is_reset {
                moves.push(Move::Establish);
            }
            return;
        }
        for side in 0..2 {
            let end = &self.ends[side];
            let other = &self.ends[1 - side];
            if end.is_reset {
                continue;
            }
            if !end.unsent.is_empty() && (other.window() > 0 || other.is_closed) {
                moves.push(Move::Deliver(side));
            }
            if end.acknowledged_at().is_some_and(|at| at <= now) {
                moves.push(Move::Acknowledge(side));
            }
            if end.fin == Fin::Queued && end.unsent.is_empty() {
                moves.push(Move::DeliverEnd(side));
            }
            if end.fin == Fin::Delivered && end.unacknowledged.is_empty() {
                moves.push(Move::AcknowledgeEnd(side));
            }
        }
    }

    /// Does what [`Connection::moves`] has listed, except for [`Move::Establish`].
    pub(crate) fn make(&mut self, next: Move, now: Duration, random: &mut Random) {
        let [first, second] = &mut self.ends;
        let (end, other) = if next.side() == 0 { (first, second) } else { (second, first) };
        match next {
            Move::Deliver(_) if other.is_closed => {
                end.reset(libc::ECONNRESET);
                other.reset(libc::ECONNRESET);
            }
            Move::Deliver(_) => {
                let most = end.unsent.len().min(other.window());
                let count = some_of(most, random);
                other.received.extend(end.unsent.drain(..count));
                end.unacknowledged.push_back((count, now));
                // Data is an answer, too.
                other.heard_at = now;
            }
            Move::Acknowledge(_) => {
                end.unacknowledged.pop_front();
                end.heard_at = now;
            }
            Move::DeliverEnd(_) => end.fin = Fin::Delivered,
            Move::AcknowledgeEnd(_) => {
                end.fin = Fin::Acknowledged;
                end.heard_at = now;
            }
            Move::Establish => {}
        }
    }

    /// The other machine has taken the connection.
    pub(crate) fn establish(&mut self, now: Duration) {
        self.is_established = true;
        self.ends[0].heard_at = now;
        self.ends[1].heard_at = now;
    }
}

/// Often all, sometimes one, else any number from 1.
pub(crate) fn some_of(most: usize, random: &mut Random) -> usize {
    match random.below(4) {
        0 => most.min(1),
        1 if most > 0 => 1 + random.index(most),
        _ => most,
    }
}
