//! The work of `benches/peers/work.h`, line by line. Change both together.

use std::mem;
use std::time::Duration;

use tagmatch::{Buffer, Config, End, Match, Peer, QueuedSend, Received, Request, Worker};

use crate::case::{Case, Kind, Outcome, RmaOperation};
use crate::memory::{COLD_BYTES, Memory, SIZE_MAX};
use crate::one_sided::{OneSided, finish};
use crate::probe::Probe;
use crate::timing::{Process, measure, print_begin, print_value};

const PING: u64 = 1;
const PONG: u64 = 2;
const DATA: u64 = 3;
const ACK: u64 = 4;
const CONTROL: u64 = 5;
const LAST: u64 = 6;
const FILLER: u64 = 1000;

const FILLERS_MAX: usize = 1 << 20;
const WINDOW_MAX: usize = 512;
/// Ends of operations that are taken together.
const ENDS_MAX: usize = 64;
/// Windows that touch all of the transport's buffers before memory is measured.
const TOUCH_WINDOWS: usize = 400;
/// Bytes of the messages whose memory is measured.
const SMALL: usize = 8;

/// One of the two processes.
pub(crate) struct Side {
    worker: Worker,
    peer: Peer,
    /// Whether this process measures; the other one answers.
    first: bool,
    /// Largest message that `inject` sends without waiting.
    eager_max: usize,
    outbox: Memory,
    inbox: Memory,
    /// The memory to send from and to receive into while a cold case runs, in place of `outbox` and
    /// `inbox`; the first of them makes it.
    cold: Option<[Memory; 2]>,
    /// Where the buffers of a cold window begin.
    starts: Vec<usize>,
    /// Buffers of the receives that never match.
    nowhere: Memory,
    fillers: Vec<Request<Received>>,
    fillers_any: bool,
    /// Ends of the operations of a window.
    ends: Vec<End>,
    /// The worker's own memory, of the cases that send from it.
    device: Buffer,
    /// Windows are vectors, which a worker owns meanwhile: over libfabric, memory that is only lent
    /// passes through memory of the device's own.
    has_vectors: bool,
    vectors: Vec<Buffer>,
    /// Made by the first case of one-sided operations.
    one_sided: Option<OneSided>,
    probe: Probe,
}

impl Side {
    pub(crate) fn new(worker: Worker, peer: Peer, first: bool, has_vectors: bool) -> Outcome<Self> {
        Ok(Side {
            worker,
            peer,
            first,
            eager_max: Config::default().eager_max,
            outbox: Memory::new(SIZE_MAX),
            inbox: Memory::new(SIZE_MAX),
            cold: None,
            starts: Vec::with_capacity(WINDOW_MAX),
            nowhere: Memory::new(SIZE_MAX),
            // This memory isn't touched before it is used, since handles are part of what a receive
            // takes.
            fillers: Vec::with_capacity(FILLERS_MAX),
            fillers_any: false,
            ends: Vec::with_capacity(ENDS_MAX),
            device: Buffer::default(),
            has_vectors,
            vectors: Vec::new(),
            one_sided: None,
            probe: Probe::new(first)?,
        })
    }

    pub(crate) fn run(mut self, cases: &[Case], duration: Duration) -> Outcome<()> {
        for case in cases {
            let (size, depth) = match case.kind {
                Kind::Latency { size, depth, .. } => (size, depth),
                Kind::Window { size, window }
                | Kind::Cold { size, window }
                | Kind::Rma { size, window, .. }
                    if window <= WINDOW_MAX =>
                {
                    (size, 0)
                }
                Kind::Buffer { size, window: 1 } => (size, 0),
                Kind::Window { .. }
                | Kind::Cold { .. }
                | Kind::Buffer { .. }
                | Kind::Rma { .. }
                | Kind::Ranks { .. } => {
                    return Err(format!("{} is out of range", case.name).into());
                }
                Kind::Posted | Kind::Unexpected => (SMALL, case.batch),
                Kind::Collective { .. } => {
                    return Err(format!("{} has a turn of its own", case.name).into());
                }
            };
            if size > SIZE_MAX || depth > FILLERS_MAX {
                return Err(format!("{} is too large", case.name).into());
            }
            match case.kind {
                Kind::Posted | Kind::Unexpected => self.run_memory(case)?,
                Kind::Latency { any_filler, .. } => {
                    self.run_timed(case, depth, any_filler, duration)?
                }
                _ => self.run_timed(case, 0, false, duration)?,
            }
        }
        self.set_fillers(0, false)?;
        self.agree(0)?;
        Ok(())
    }

    #[inline]
    fn which(&self, tag: u64, any_source: bool) -> Match {
        if any_source { Match::tag(tag) } else { Match::tag(tag).from(self.peer) }
    }

    /// Sends from the outbox; returns when it may be used again.
    #[inline]
    fn send(&self, size: usize, tag: u64) -> Outcome<()> {
        if size <= self.eager_max {
            self.worker.inject(self.peer, tag, self.outbox.bytes(size))?;
        } else {
            finish(self.worker.send(self.peer, tag, self.outbox.outgoing(size)))?;
        }
        Ok(())
    }

    /// Receives into the inbox.
    #[inline]
    fn receive(&self, size: usize, tag: u64, any_source: bool) -> Outcome<()> {
        finish(self.worker.recv(self.which(tag, any_source), self.inbox.incoming(size))).map(drop)
    }

    fn latency_batch(&self, size: usize, any_source: bool, count: usize) -> Outcome<()> {
        if self.first {
            for _ in 0..count {
                self.send(size, PING)?;
                self.receive(size, PONG, any_source)?;
            }
        } else {
            for _ in 0..count {
                self.receive(size, PING, any_source)?;
                self.send(size, PONG)?;
            }
        }
        Ok(())
    }

    fn window_batch(&mut self, size: usize, window: usize, count: usize) -> Outcome<()> {
        for _ in 0..count {
            if self.first {
                let mut under_way = 0;
                for _ in 0..window {
                    under_way += usize::from(self.begin_send(size)?);
                }
                self.take_ends(under_way)?;
                self.receive(4, ACK, false)?;
            } else {
                for _ in 0..window {
                    self.begin_receive(size)?;
                }
                self.take_ends(window)?;
                self.send(4, ACK)?;
            }
        }
        Ok(())
    }

    /// Whether the send will have an end.
    #[inline]
    fn begin_send(&mut self, size: usize) -> Outcome<bool> {
        if size <= self.eager_max {
            self.worker.inject(self.peer, DATA, self.outbox.bytes(size))?;
            return Ok(false);
        }
        let buffer = self.vector(size, true);
        match self.worker.send_queued(self.peer, DATA, buffer, 0)? {
            QueuedSend::Complete(buffer) => {
                self.keep(buffer);
                Ok(false)
            }
            QueuedSend::UnderWay(_) => Ok(true),
        }
    }

    #[inline]
    fn begin_receive(&mut self, size: usize) -> Outcome<()> {
        let buffer = self.vector(size, false);
        self.worker.recv_queued(self.which(DATA, false), buffer, 0)?;
        Ok(())
    }

    /// Round trips (window 1), or windows with an acknowledgement, in which each message has
    /// another buffer, and the data are read after they have arrived.
    fn cold_batch(&mut self, size: usize, window: usize, count: usize) -> Outcome<()> {
        let turns = if window == 1 { 2 } else { 1 };
        for _ in 0..count {
            for turn in 0..turns {
                if self.first == (turn == 0) {
                    self.send_cold(size, window)?;
                } else {
                    self.receive_cold(size, window)?;
                }
            }
            if window == 1 {
                continue;
            }
            if self.first {
                self.receive(4, ACK, false)?;
            } else {
                self.send(4, ACK)?;
            }
        }
        Ok(())
    }

    fn send_cold(&mut self, size: usize, window: usize) -> Outcome<()> {
        let mut under_way = 0;
        if window == 1 {
            self.outbox.advance(size);
            return self.send(size, DATA);
        }
        for _ in 0..window {
            self.outbox.advance(size);
            under_way += usize::from(self.begin_send(size)?);
        }
        self.take_ends(under_way)
    }

    fn receive_cold(&mut self, size: usize, window: usize) -> Outcome<()> {
        if window == 1 {
            let start = self.inbox.advance(size);
            self.receive(size, DATA, false)?;
            self.inbox.read_data(start, size);
            return Ok(());
        }
        for _ in 0..window {
            self.starts.push(self.inbox.advance(size));
            self.begin_receive(size)?;
        }
        self.take_ends(window)?;
        for start in self.starts.drain(..) {
            self.inbox.read_data(start, size);
        }
        Ok(())
    }

    /// Exchanges the buffers of all other cases for those of cold ones, and back.
    fn swap_cold(&mut self) {
        let [outbox, inbox] =
            self.cold.get_or_insert_with(|| [(); 2].map(|()| Memory::new(COLD_BYTES)));
        mem::swap(&mut self.outbox, outbox);
        mem::swap(&mut self.inbox, inbox);
    }

    /// A buffer of a window: a vector that was used before, or memory that is lent.
    #[inline]
    fn vector(&mut self, size: usize, is_outgoing: bool) -> Buffer {
        if !self.has_vectors {
            return if is_outgoing {
                self.outbox.outgoing(size)
            } else {
                self.inbox.incoming(size)
            };
        }
        self.vectors.pop().unwrap_or_else(|| vec![1; size].into())
    }

    #[inline]
    fn keep(&mut self, buffer: Buffer) {
        if self.has_vectors {
            self.vectors.push(buffer);
        }
    }

    /// Sends one message at a time out of the worker's own memory.
    fn buffer_batch(&mut self, size: usize, count: usize) -> Outcome<()> {
        for _ in 0..count {
            if self.first {
                let buffer = mem::take(&mut self.device);
                self.device = finish(self.worker.send(self.peer, DATA, buffer))?.buffer;
                self.receive(4, ACK, false)?;
            } else {
                self.receive(size, DATA, false)?;
                self.send(4, ACK)?;
            }
        }
        Ok(())
    }

    /// Takes the ends of so many operations out of the completion queue, without a pause in
    /// between.
    #[inline]
    fn take_ends(&mut self, mut count: usize) -> Outcome<()> {
        while count > 0 {
            self.worker.ends(&mut self.ends, ENDS_MAX);
            for end in self.ends.drain(..) {
                if let End::Operation { result, buffer, .. } = end {
                    result?;
                    count -= 1;
                    if self.has_vectors {
                        self.vectors.push(buffer);
                    }
                }
            }
        }
        Ok(())
    }

    fn set_fillers(&mut self, depth: usize, any: bool) -> Outcome<()> {
        if depth < self.fillers.len() || any != self.fillers_any {
            for filler in self.fillers.drain(..) {
                filler.cancel_wait()?;
            }
            self.fillers_any = any;
        }
        for i in self.fillers.len()..depth {
            let which = self.which(FILLER + i as u64, any);
            self.fillers.push(self.worker.recv(which, self.nowhere.incoming(SMALL)));
        }
        Ok(())
    }

    /// Sends one message each way, and checks every byte.
    fn check_bytes(&mut self, size: usize, name: &str) -> Outcome<()> {
        for (i, byte) in self.outbox.bytes_mut(size).iter_mut().enumerate() {
            *byte = pattern(self.first, i);
        }
        self.inbox.bytes_mut(size).fill(0);
        self.latency_batch(size, false, 1)?;
        self.check_inbox(size, name)
    }

    /// Sends the same bytes out of the worker's own memory, and checks them.
    fn check_device(&mut self, size: usize, name: &str) -> Outcome<()> {
        self.inbox.bytes_mut(size).fill(0);
        if self.first {
            self.device = self.worker.buffer(size);
            let bytes = self.device.as_mut_slice().ok_or("memory that can't be written")?;
            bytes.copy_from_slice(self.outbox.bytes(size));
        }
        self.buffer_batch(size, 1)?;
        if self.first { Ok(()) } else { self.check_inbox(size, name) }
    }

    /// Checks what two operations of the case do, and clears both regions.
    fn check_rma(&mut self, operation: RmaOperation, size: usize, name: &str) -> Outcome<()> {
        if self.one_sided.is_none() {
            self.one_sided = Some(OneSided::new(&self.worker, self.peer)?);
        }
        let of = |first: bool| (0..size).map(|i| pattern(first, i)).collect::<Vec<_>>();
        self.outbox.bytes_mut(size).copy_from_slice(&of(true));
        self.inbox.bytes_mut(size).fill(0);
        if !self.first {
            self.one_sided()?.region.write(0, &of(false))?;
        }
        self.agree(1)?;
        self.rma_batch(operation, (size, 2), 1)?;
        self.agree(1)?;
        let mut there = vec![0; size];
        self.one_sided()?.region.read(0, &mut there)?;
        let is_right = match operation {
            RmaOperation::Get => !self.first || self.inbox.bytes(size) == of(false),
            RmaOperation::Put => self.first || there == of(true),
            RmaOperation::FetchAdd => {
                let number = |bytes: &[u8]| bytes.first_chunk().map(|b| u64::from_ne_bytes(*b));
                self.first || number(&there) == number(&of(false)).map(|before| before + 2)
            }
        };
        self.one_sided()?.region.write(0, &vec![0; size])?;
        self.agree(1)?;
        if is_right { Ok(()) } else { Err(format!("{name}: wrong bytes").into()) }
    }

    fn one_sided(&mut self) -> Outcome<&mut OneSided> {
        self.one_sided.as_mut().ok_or_else(|| "no region".into())
    }

    /// Puts that go back and forth (a window of one), or windows of operations, while the other
    /// side makes progress.
    fn rma_batch(
        &mut self,
        operation: RmaOperation,
        (size, window): (usize, usize),
        count: usize,
    ) -> Outcome<()> {
        let Side { worker, first, one_sided, outbox, inbox, .. } = self;
        let one_sided = one_sided.as_mut().ok_or("no region")?;
        if operation == RmaOperation::Put && window == 1 {
            for _ in 0..count {
                one_sided.next_turn();
                for is_sender in [*first, !*first] {
                    one_sided.put_and_notice(worker, outbox, size, is_sender)?;
                }
            }
            return Ok(());
        }
        if !self.first {
            return self.receive(4, ACK, false);
        }
        for _ in 0..count {
            one_sided.window(operation, [outbox, inbox], size, window)?;
        }
        self.send(4, ACK)
    }

    fn check_inbox(&self, size: usize, name: &str) -> Outcome<()> {
        match self
            .inbox
            .bytes(size)
            .iter()
            .enumerate()
            .find(|(i, b)| **b != pattern(!self.first, *i))
        {
            Some((i, _)) => Err(format!("{name}: byte {i} of {size} is wrong").into()),
            None => Ok(()),
        }
    }

    fn run_timed(
        &mut self,
        case: &Case,
        depth: usize,
        any_filler: bool,
        duration: Duration,
    ) -> Outcome<()> {
        let (size, operations) = match case.kind {
            Kind::Window { size, window } | Kind::Buffer { size, window } => (size, window),
            // A latency is half a round trip.
            Kind::Latency { size, .. } | Kind::Cold { size, window: 1 } => (size, 2),
            Kind::Rma { operation: RmaOperation::Put, size, window: 1 } => (size, 2),
            Kind::Cold { size, window } | Kind::Rma { size, window, .. } => (size, window),
            _ => return Err("nothing to time".into()),
        };
        self.vectors.clear();
        self.set_fillers(depth, any_filler)?;
        if let Kind::Rma { operation, .. } = case.kind {
            self.check_rma(operation, size, &case.name)?;
            return measure(self, case, operations, duration);
        }
        self.check_bytes(size, &case.name)?;
        if let Kind::Buffer { .. } = case.kind {
            self.check_device(size, &case.name)?;
        }
        if !matches!(case.kind, Kind::Cold { .. }) {
            return measure(self, case, operations, duration);
        }
        self.swap_cold();
        let measured = measure(self, case, operations, duration);
        self.swap_cold();
        measured
    }

    /// Growth of the resident memory of the second process, per receive or message, with handles
    /// and without the bytes that are received.
    fn run_memory(&mut self, case: &Case) -> Outcome<()> {
        let mut growth = 0;
        if self.first {
            print_begin(case);
        }
        self.set_fillers(0, false)?;
        self.window_batch(SMALL, 64, TOUCH_WINDOWS)?;
        self.window_batch(SMALL, 1, TOUCH_WINDOWS)?;
        if case.kind == Kind::Posted {
            if !self.first {
                let before = resident_bytes()?;
                self.set_fillers(case.batch, false)?;
                growth = resident_bytes()?.saturating_sub(before);
                self.set_fillers(0, false)?;
            }
        } else {
            let before = resident_bytes()?;
            self.agree(1)?;
            if self.first {
                for i in 0..case.batch {
                    self.send(SMALL, FILLER + i as u64)?;
                }
                self.send(SMALL, LAST)?;
            } else {
                // Messages don't overtake each other: once this one has arrived, the others have,
                // too.
                self.receive(SMALL, LAST, false)?;
                growth = resident_bytes()?.saturating_sub(before);
                for i in 0..case.batch {
                    self.receive(SMALL, FILLER + i as u64, false)?;
                }
            }
        }
        if self.first {
            let mut number = [0; 8];
            self.worker.recv_blocking(self.which(DATA, false), &mut number)?;
            print_value(case, u64::from_ne_bytes(number) as f64 / case.batch as f64);
        } else {
            self.worker.inject(self.peer, DATA, &growth.to_ne_bytes())?;
        }
        Ok(())
    }
}

impl Process for Side {
    fn is_first(&self) -> bool {
        self.first
    }

    fn probe(&mut self) -> &mut Probe {
        &mut self.probe
    }

    fn agree(&self, count: usize) -> Outcome<usize> {
        let mut number = u32::try_from(count)?.to_ne_bytes();
        if self.first {
            self.worker.inject(self.peer, CONTROL, &number)?;
        }
        self.worker.recv_blocking(self.which(CONTROL, false), &mut number)?;
        if !self.first {
            self.worker.inject(self.peer, CONTROL, &number)?;
        }
        Ok(u32::from_ne_bytes(number) as usize)
    }

    fn batch(&mut self, case: &Case, count: usize) -> Outcome<()> {
        match case.kind {
            Kind::Latency { size, any_source, .. } => self.latency_batch(size, any_source, count),
            Kind::Window { size, window } => self.window_batch(size, window, count),
            Kind::Buffer { size, .. } => self.buffer_batch(size, count),
            Kind::Cold { size, window } => self.cold_batch(size, window, count),
            Kind::Rma { operation, size, window } => {
                self.rma_batch(operation, (size, window), count)
            }
            _ => Ok(()),
        }
    }
}

/// A byte of the messages that the first process sends to check them, or the second one.
fn pattern(first: bool, i: usize) -> u8 {
    (usize::from(first) + 11 + i * 7 + i / 251).to_le_bytes()[0]
}

/// Bytes of memory, private and shared with other processes, that are resident in this process.
/// Pages of files don't count: the kernel maps a program's code in runs of many pages when it is
/// first used.
fn resident_bytes() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let of = |name: &str| -> Outcome<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(number.ok_or("/proc/self/status is cut short")?.parse::<u64>()? << 10)
    };
    Ok(of("RssAnon:")? + of("RssShmem:")?)
}
