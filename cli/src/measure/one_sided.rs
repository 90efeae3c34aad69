//! One-sided operations of the client on a region of the other side: puts, gets, and additions that
//! give the old number.
//!
//! The other side takes no part in an operation, but makes progress, which messages need. Each
//! operation of a batch has its own place in the region, so that all bytes can be checked behind
//! the batch. Only additions share one number, and the old numbers count them.

use std::ops::Range;
use std::time::Instant;

use super::batch::{ANSWER, Batch};
use super::error::MeasureError;
use super::participant::Participant;
use super::thread::Span;
use super::threads::RunThreads;
use crate::link::{Access, Buffer, Link, LinkError, Output, Region, Remote, Request, Token};
use crate::payload::{Direction, Stamp};
use crate::spec::{OneSided, Traffic};

/// Shorter regions are no memory that peers can map.
const REGION_BYTES_MIN: usize = 64 << 10;

fn stamp(number: u64) -> Stamp {
    Stamp { iteration: number, direction: Direction::Ping, thread: 0 }
}

/// The client's buffers, and the region of the other side.
pub(super) struct Initiator<A: Access> {
    operation: OneSided,
    /// Whether one operation at a time is under way, and timed.
    times_each: bool,
    size: usize,
    window: usize,
    remote: Option<Remote<A>>,
    /// By the operation's number in its batch.
    buffers: Vec<Buffer>,
    /// Old numbers, of additions.
    olds: Vec<u64>,
    /// Operations of all batches so far.
    done: u64,
    /// How long each operation of the last batch took.
    pub(super) times_ns: Vec<u64>,
}

impl<A: RunThreads> Initiator<A> {
    /// `None` if the case is about messages.
    pub(super) fn new(participant: &Participant<'_, A>) -> Option<Self> {
        let case = participant.case;
        let Traffic::OneSided { operation, times_each } = case.traffic else { return None };
        let size = usize::try_from(case.size).unwrap_or(usize::MAX);
        let buffer = |_| participant.link.buffer(size);
        Some(Self {
            operation,
            times_each,
            size,
            window: usize::try_from(case.window).unwrap_or(usize::MAX),
            remote: None,
            buffers: (0..case.batch).map(buffer).collect(),
            olds: Vec::new(),
            done: 0,
            times_ns: Vec::new(),
        })
    }

    /// Runs a batch.
    pub(super) fn batch(
        &mut self,
        participant: &mut Participant<'_, A>,
        batch: Batch,
    ) -> Result<Span, MeasureError> {
        let validate = participant.case.validate;
        self.times_ns.clear();
        self.olds.clear();
        if validate && self.operation == OneSided::Put {
            for (number, buffer) in (self.done..).zip(&mut self.buffers[..batch.count()]) {
                if let Some(bytes) = buffer.as_mut_slice() {
                    stamp(number).fill(bytes);
                }
            }
        }
        let remote = self.begin(participant, batch)?;
        let link = &participant.link;
        let start = Instant::now();
        let mut last = start;
        if self.times_each {
            for at in 0..batch.count() {
                self.finish_one(link, &remote, at)?;
                let now = Instant::now();
                self.times_ns.push(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
                last = now;
            }
        } else {
            for from in (0..batch.count()).step_by(self.window) {
                let to = batch.count().min(from + self.window);
                self.finish_window(link, &remote, from..to)?;
            }
            last = Instant::now();
        }
        participant.finish_send(link.send(ANSWER, Buffer::default()))?;
        if validate {
            self.check(batch)?;
        }
        self.done += batch.messages;
        Ok(Span { start, end: last })
    }

    /// Begins a batch, and gives the region. The other side tells of it before its first batch.
    fn begin(
        &mut self,
        participant: &mut Participant<'_, A>,
        batch: Batch,
    ) -> Result<Remote<A>, MeasureError> {
        if let Some(remote) = &self.remote {
            participant.begin(batch)?;
            return Ok(remote.clone());
        }
        let token = participant.link.receive(ANSWER, Buffer::zeroed(Token::BYTES));
        participant.begin(batch)?;
        let token = participant.finish(token)?;
        let token: &[u8; Token::BYTES] =
            token.data().try_into().map_err(|_| MeasureError::Token)?;
        let remote = participant.link.attach(token)?;
        Ok(self.remote.insert(remote).clone())
    }

    /// The operation with this number, and no other one beside it.
    #[inline]
    fn finish_one(
        &mut self,
        link: &Link<A>,
        remote: &Remote<A>,
        at: usize,
    ) -> Result<(), LinkError> {
        if self.operation == OneSided::Fadd {
            self.olds.push(link.add_one(remote)?);
            return Ok(());
        }
        self.finish_window(link, remote, at..at + 1)
    }

    /// The operations with these numbers, all of them at a time.
    #[inline]
    fn finish_window(
        &mut self,
        link: &Link<A>,
        remote: &Remote<A>,
        numbers: Range<usize>,
    ) -> Result<(), LinkError> {
        match self.operation {
            OneSided::Put => self.finish_all(
                link,
                numbers,
                |place, buffer| remote.put(place, buffer),
                |sent| sent.buffer,
            ),
            OneSided::Get => self.finish_all(
                link,
                numbers,
                |place, buffer| remote.get(place, buffer),
                |received| received.buffer,
            ),
            OneSided::Fadd => {
                self.finish_all(
                    link,
                    numbers.clone(),
                    |_, buffer| link.begin_add_one(remote, buffer),
                    |received| received.buffer,
                )?;
                let olds = self.buffers[numbers].iter();
                let old = |old: &Buffer| old.first_chunk().copied().map_or(0, u64::from_ne_bytes);
                self.olds.extend(olds.map(old));
                Ok(())
            }
        }
    }

    /// Begins the operations with these numbers, and waits for them in their order.
    #[inline]
    fn finish_all<T: Output>(
        &mut self,
        link: &Link<A>,
        numbers: Range<usize>,
        begin: impl Fn(u64, Buffer) -> Request<T, A>,
        buffer_of: impl Fn(T) -> Buffer,
    ) -> Result<(), LinkError> {
        let size = self.size;
        let begin = |buffers: &mut [Buffer], at: usize| {
            begin((at * size) as u64, std::mem::take(&mut buffers[at]))
        };
        if numbers.len() == 1 {
            let request = begin(&mut self.buffers, numbers.start);
            self.buffers[numbers.start] = buffer_of(link.finish(request)?);
            return Ok(());
        }
        let under_way: Vec<_> = numbers.clone().map(|at| begin(&mut self.buffers, at)).collect();
        for (at, request) in numbers.zip(under_way) {
            self.buffers[at] = buffer_of(link.finish(request)?);
        }
        Ok(())
    }

    /// Checks what the operations of a batch have fetched.
    fn check(&self, batch: Batch) -> Result<(), MeasureError> {
        if self.operation == OneSided::Get {
            for (number, buffer) in (self.done..).zip(&self.buffers[..batch.count()]) {
                stamp(number).check(buffer)?;
            }
        }
        for (wanted, &found) in (self.done..).zip(&self.olds) {
            if found != wanted {
                return Err(MeasureError::Old { found, wanted });
            }
        }
        Ok(())
    }
}

/// The other side's region.
pub(super) struct RegionOwner<A: Access> {
    operation: OneSided,
    size: usize,
    region: Region<A>,
    is_told: bool,
    /// Operations of all batches so far.
    done: u64,
}

impl<A: RunThreads> RegionOwner<A> {
    /// Exposes the region. `None` if the case is about messages.
    pub(super) fn new(participant: &Participant<'_, A>) -> Result<Option<Self>, MeasureError> {
        let case = participant.case;
        let Traffic::OneSided { operation, .. } = case.traffic else { return Ok(None) };
        let size = usize::try_from(case.size).unwrap_or(usize::MAX);
        let bytes = size.saturating_mul(usize::try_from(case.batch).unwrap_or(usize::MAX));
        let region = participant.link.expose(bytes.max(REGION_BYTES_MIN))?;
        Ok(Some(Self { operation, size, region, is_told: false, done: 0 }))
    }

    /// Prepares the region for a batch, waits until the client has ended the batch, and checks what
    /// was put.
    pub(super) fn answer(
        &mut self,
        participant: &mut Participant<'_, A>,
        batch: Batch,
    ) -> Result<(), MeasureError> {
        let validate = participant.case.validate;
        let mut bytes = vec![0; self.size];
        let numbered = (self.done..).zip(0..batch.count());
        if validate && self.operation == OneSided::Get {
            for (number, at) in numbered.clone() {
                stamp(number).fill(&mut bytes);
                self.region.write(at * self.size, &bytes).map_err(LinkError::from)?;
            }
        }
        if !self.is_told {
            let token = Buffer::from(self.region.token().to_bytes().to_vec());
            participant.finish_send(participant.link.send(ANSWER, token))?;
            self.is_told = true;
        }
        let over = participant.link.receive(ANSWER, Buffer::default());
        participant.go(batch)?;
        participant.finish(over)?;
        if validate && self.operation == OneSided::Put {
            for (number, at) in numbered {
                self.region.read(at * self.size, &mut bytes).map_err(LinkError::from)?;
                stamp(number).check(&bytes)?;
            }
        }
        self.done += batch.messages;
        Ok(())
    }
}
