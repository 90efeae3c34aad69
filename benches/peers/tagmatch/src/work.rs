//! The work of `benches/peers/work.h`, line by line. Change both together.

use std::time::{Duration, Instant};

use tagmatch::{Config, Match, Output, Peer, Received, Request, Sent, Worker};

use crate::case::{Case, Kind, Outcome, Samples, print_begin, print_value};
use crate::memory::{Memory, SIZE_MAX};

const PING: u64 = 1;
const PONG: u64 = 2;
const DATA: u64 = 3;
const ACK: u64 = 4;
const CONTROL: u64 = 5;
const LAST: u64 = 6;
const FILLER: u64 = 1000;

const FILLERS_MAX: usize = 1 << 20;
const WINDOW_MAX: usize = 64;
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
    /// Buffers of the receives that never match.
    nowhere: Memory,
    fillers: Vec<Request<Received>>,
    fillers_any: bool,
    sends: Vec<Request<Sent>>,
    receives: Vec<Request<Received>>,
}

impl Side {
    pub(crate) fn new(worker: Worker, peer: Peer, first: bool) -> Self {
        Side {
            worker,
            peer,
            first,
            eager_max: Config::default().eager_max,
            outbox: Memory::new(),
            inbox: Memory::new(),
            nowhere: Memory::new(),
            // This memory isn't touched before it is used, since handles are part of what a receive
            // takes.
            fillers: Vec::with_capacity(FILLERS_MAX),
            fillers_any: false,
            sends: Vec::with_capacity(WINDOW_MAX),
            receives: Vec::with_capacity(WINDOW_MAX),
        }
    }

    pub(crate) fn run(mut self, cases: &[Case], milliseconds: f64) -> Outcome<()> {
        let duration = Duration::try_from_secs_f64(milliseconds / 1e3)?;
        for case in cases {
            let (size, depth) = match case.kind {
                Kind::Latency { size, depth, .. } => (size, depth),
                Kind::Window { size, .. } => (size, 0),
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
                Kind::Window { .. } | Kind::Collective { .. } => {
                    self.run_timed(case, 0, false, duration)?
                }
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
        finish(self.worker.recv(self.which(tag, any_source), self.inbox.incoming(size)))
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
                for _ in 0..window {
                    if size <= self.eager_max {
                        self.worker.inject(self.peer, DATA, self.outbox.bytes(size))?;
                    } else {
                        let buffer = self.outbox.outgoing(size);
                        self.sends.push(self.worker.send(self.peer, DATA, buffer));
                    }
                }
                for send in self.sends.drain(..) {
                    finish(send)?;
                }
                self.receive(4, ACK, false)?;
            } else {
                for _ in 0..window {
                    let buffer = self.inbox.incoming(size);
                    self.receives.push(self.worker.recv(self.which(DATA, false), buffer));
                }
                for receive in self.receives.drain(..) {
                    finish(receive)?;
                }
                self.send(4, ACK)?;
            }
        }
        Ok(())
    }

    /// Both sides agree on how many operations the next batch has; 0 ends the case. This is
    /// also a barrier.
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
        let pattern =
            |first: bool, i: usize| (usize::from(first) + 11 + i * 7 + i / 251).to_le_bytes()[0];
        for (i, byte) in self.outbox.bytes_mut(size).iter_mut().enumerate() {
            *byte = pattern(self.first, i);
        }
        self.inbox.bytes_mut(size).fill(0);
        self.latency_batch(size, false, 1)?;
        let received = self.inbox.bytes(size).iter().enumerate();
        for (i, byte) in received {
            if *byte != pattern(!self.first, i) {
                return Err(format!("{name}: byte {i} of {size} is wrong").into());
            }
        }
        Ok(())
    }

    fn run_timed(
        &mut self,
        case: &Case,
        depth: usize,
        any_filler: bool,
        duration: Duration,
    ) -> Outcome<()> {
        let (size, operations) = match case.kind {
            Kind::Window { size, window } => (size, window),
            // A latency is half a round trip.
            Kind::Latency { size, .. } => (size, 2),
            _ => return Err("nothing to time".into()),
        };
        self.set_fillers(depth, any_filler)?;
        self.check_bytes(size, &case.name)?;
        if !self.first {
            loop {
                match self.agree(0)? {
                    0 => return Ok(()),
                    count => self.batch(case, count)?,
                }
            }
        }
        print_begin(case);
        // The first pass is warm-up.
        for (duration, is_last) in [(duration / 4, false), (duration, true)] {
            let mut samples = Samples::begin();
            while !samples.enough(duration) {
                self.agree(case.batch)?;
                let start = Instant::now();
                self.batch(case, case.batch)?;
                let nanoseconds = start.elapsed().as_nanos() as f64;
                samples.push(nanoseconds / (case.batch * operations) as f64);
            }
            if is_last {
                self.agree(0)?;
                samples.print(case);
            }
        }
        Ok(())
    }

    fn batch(&mut self, case: &Case, count: usize) -> Outcome<()> {
        match case.kind {
            Kind::Latency { size, any_source, .. } => self.latency_batch(size, any_source, count),
            Kind::Window { size, window } => self.window_batch(size, window, count),
            _ => Ok(()),
        }
    }

    /// Growth of the resident memory of the second process, per receive or message, with handles
    /// and without the bytes that are received.
    fn run_memory(&mut self, case: &Case) -> Outcome<()> {
        let mut growth = 0;
        if self.first {
            print_begin(case);
        }
        self.set_fillers(0, false)?;
        self.window_batch(SMALL, WINDOW_MAX, TOUCH_WINDOWS)?;
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

/// Polls until the operation has ended, without a pause in between, as the peers do.
#[inline]
fn finish<T: Output>(mut request: Request<T>) -> Outcome<()> {
    loop {
        if let Some(result) = request.test() {
            result?;
            return Ok(());
        }
    }
}

/// Bytes of this process that are resident in memory, private and shared.
fn resident_bytes() -> Outcome<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).ok_or("/proc/self/statm is cut short")?;
    Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
}
