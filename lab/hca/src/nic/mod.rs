//! The part of the device that serves one process: its queues, its memory, and its time.

mod adapter;
pub(crate) mod completion_queue;
pub(crate) mod connection;
mod counts;
mod dice;
mod disorder;
mod fabric;
mod faults;
mod finish;
mod loss;
pub(crate) mod packet;
mod ports;
pub(crate) mod queue_pair;
pub(crate) mod receive;
pub(crate) mod receive_queue;
pub(crate) mod region;
mod respond;
mod send;
pub(crate) mod tags;
mod wired;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tagmatch_model::{QueuePair, Work};

pub(crate) use adapter::{Adapter, AsyncNotice, Context};
pub(crate) use counts::Counts;
pub(crate) use fabric::{Fabric, Inbox, Letter};
pub(crate) use loss::DeviceOperation;
pub(crate) use packet::NOWHERE;
use packet::{Body, Packet};
pub(crate) use ports::Ports;
use queue_pair::{Qp, Receives, State, TagRequest};
use send::TagNotice;

use crate::abi::event;
use crate::boundary::{Answers, Objects};
use crate::memory::Memory;
use crate::roce::link::ArrivedPacket;
use crate::settings::Settings;
use crate::wqe::RemoteAddress;

/// Letters that one turn takes.
const LETTERS: usize = 64;
/// How long the device sleeps between looks at the registers.
const SHORT_SLEEP: Duration = Duration::from_micros(20);
const LONG_SLEEP: Duration = Duration::from_micros(50);
const IDLE_SLEEP: Duration = Duration::from_millis(4);
/// After this long without work the device takes the longer sleep, and then the idle one.
const LONG_AFTER: Duration = Duration::from_millis(5);
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// How often all records are looked at though no register was written to; less often if that
/// takes long, so that it takes no more than a part of the time.
const TURN_EVERY: Duration = Duration::from_millis(1);
const TURN_PART: u32 = 10;
/// How often descriptors that a program may have closed are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The part of the device that serves one process.
pub(crate) struct Function<M> {
    pub(crate) adapter: Adapter<M>,
    pub(crate) qps: BTreeMap<u32, Qp>,
    pub(crate) objects: Objects,
    /// By thread, where signals interrupt commands: what the program's memory held of its last
    /// command when that was answered. A signal may interrupt a caller that has been answered, just
    /// before it takes the answer (`seccomp_do_user_notification`). It then gives the command again
    /// as it stands in memory, answers included; a new command has none.
    pub(crate) answered: VecDeque<(i32, Vec<u8>)>,
    records: Vec<u64>,
    values: Vec<Option<[u32; 2]>>,
    /// The last turn has left something to do.
    has_more: bool,
    /// When all contexts are looked at next.
    all_at: Instant,
}

impl<M: Memory> Function<M> {
    pub(crate) fn new(
        memory: M,
        fabric: Arc<Fabric>,
        inbox: Inbox,
        settings: Arc<Settings>,
    ) -> Self {
        Function {
            adapter: Adapter::new(memory, fabric, inbox, settings),
            qps: BTreeMap::new(),
            objects: Objects::default(),
            answered: VecDeque::new(),
            records: Vec::new(),
            values: Vec::new(),
            has_more: false,
            all_at: Instant::now(),
        }
    }

    /// Serves the process until it ends. `is_open` says whether the process still has a file at a
    /// descriptor.
    pub(crate) fn serve(
        mut self,
        answers: &impl Answers,
        is_open: impl Fn(i32, u64) -> bool,
    ) -> Counts {
        let start = Instant::now();
        let mut busy_at = start;
        let mut look_at = start;
        loop {
            let Some(has_letters) = self.take_letters(answers) else { return self.end() };
            let now = Instant::now();
            let is_due = self.rang(now) || has_letters || self.has_more || now >= self.all_at;
            if is_due {
                self.has_more = self.turn_at(now);
                if self.adapter.is_gone {
                    return self.end();
                }
                if has_letters || self.has_more {
                    busy_at = now;
                    continue;
                }
            }
            if now.duration_since(look_at) > LOOK_EVERY {
                look_at = now;
                self.close_what_is_closed(&is_open);
            }
            let sleep = match now.duration_since(busy_at) {
                idle if idle > IDLE_AFTER => IDLE_SLEEP,
                idle if idle > LONG_AFTER => LONG_SLEEP,
                _ => SHORT_SLEEP,
            };
            self.adapter.inbox.sleep(sleep);
        }
    }

    /// Takes letters, if there are some; whether there were. `None`: the process has ended.
    pub(crate) fn take_letters(&mut self, answers: &impl Answers) -> Option<bool> {
        let mut has_letters = false;
        for _ in 0..LETTERS {
            match self.adapter.inbox.take() {
                Some(Letter::End) => return None,
                Some(letter) => self.take(letter, answers),
                None => break,
            }
            has_letters = true;
        }
        Some(has_letters)
    }

    /// Whether the program has written to a register.
    pub(crate) fn rang(&mut self, now: Instant) -> bool {
        let mut rang = false;
        for context in self.adapter.contexts.values_mut() {
            if context.doorbells.rang() {
                context.warm(now);
                context.has_rung = true;
                rang = true;
            }
        }
        rang
    }

    fn close_what_is_closed(&mut self, is_open: &impl Fn(i32, u64) -> bool) {
        let closed: Vec<i32> = (self.adapter.contexts.iter())
            .filter(|(fd, context)| !is_open(**fd, context.doorbells.inode()))
            .map(|(fd, _)| *fd)
            .collect();
        for fd in closed {
            self.close_context(fd);
        }
    }

    fn end(mut self) -> Counts {
        for number in self.qps.keys() {
            self.adapter.fabric.remove(*number);
        }
        let counts = &mut self.adapter.counts;
        let lists = self.adapter.srqs.values_mut().filter_map(|srq| srq.tags.as_mut());
        lists.for_each(|tags| tags.count(counts));
        self.adapter.counts
    }

    fn take(&mut self, letter: Letter, answers: &impl Answers) {
        match letter {
            Letter::Packet(packet) => self.hear(packet),
            Letter::Arrived(arrived) => self.hear_wire(*arrived),
            Letter::Call(call) => {
                self.adapter.counts.commands += 1;
                self.call(&call, answers);
                self.all_at = Instant::now();
            }
            Letter::Fault(device, event) => self.suffer(device, event),
            Letter::End => {}
        }
    }

    /// Something has happened in a context. Whether something had a short time ago.
    fn warm(&mut self, context: i32) -> bool {
        let now = Instant::now();
        let context = self.adapter.contexts.get_mut(&context);
        context.is_some_and(|context| {
            let was_warm = context.warm_until > now;
            context.warm(now);
            was_warm
        })
    }

    fn hear(&mut self, packet: Packet) {
        let is_datagram = matches!(packet.body, Body::Datagram { .. });
        if let Body::Datagram { message, .. } = &packet.body {
            self.adapter.inbox.taken(message.bytes.len());
        }
        let to = packet.to;
        let Some(qp) = self.qps.get(&to) else { return };
        let of = qp.facts.context;
        if self.is_lost(of) {
            return;
        }
        let was_warm = self.warm(of);
        // The program may have posted the receive that this message needs. A datagram without one
        // is lost.
        if is_datagram || !was_warm {
            self.look(|context| context == of);
        }
        let Some(qp) = self.qps.get_mut(&to) else { return };
        let notices = qp.hear(&mut self.adapter, packet);
        self.tell_tags(to, notices);
    }

    fn hear_wire(&mut self, arrived: ArrivedPacket) {
        self.adapter.inbox.taken(Fabric::room_of(&arrived));
        let to = arrived.packet.to;
        let Some(qp) = self.qps.get(&to) else { return };
        let of = qp.facts.context;
        self.warm(of);
        // The program may have posted the receive that this message needs.
        if arrived.packet.operation.needs_receive() {
            self.look(|context| context == of);
        }
        let Some(qp) = self.qps.get_mut(&to) else { return };
        let notices = qp.hear_wire(&mut self.adapter, arrived);
        self.tell_tags(to, notices);
    }

    /// A turn of all contexts if it is time for that, and otherwise of the warm ones.
    fn turn_at(&mut self, now: Instant) -> bool {
        if now < self.all_at {
            let warm = self.adapter.contexts.iter().filter(|(_, context)| context.warm_until > now);
            let warm: BTreeSet<i32> = warm.map(|(fd, _)| *fd).collect();
            return self.turn(|context| warm.contains(&context));
        }
        self.adapter.fabric.send_late();
        let was_busy = self.turn(|_| true);
        self.all_at = now + TURN_EVERY.max(now.elapsed() * TURN_PART);
        was_busy
    }

    /// One look at the queues of these contexts; whether there was anything to do.
    pub(crate) fn turn(&mut self, is_looked_at: impl Fn(i32) -> bool) -> bool {
        self.lose_contexts();
        let lost = self.lost_contexts();
        let is_looked_at = |context: i32| is_looked_at(context) && !lost.contains(&context);
        if !self.look(is_looked_at) {
            return false;
        }
        let mut was_busy = false;
        let looked_at = self.qps.iter().filter(|(_, qp)| is_looked_at(qp.facts.context));
        let numbers: Vec<u32> = looked_at.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(qp) = self.qps.get_mut(&number) else { continue };
            if self.adapter.is_lost_now(qp.facts.context) {
                continue;
            }
            let sent = qp.advance(&mut self.adapter);
            if sent.was_busy {
                was_busy = true;
                let of = qp.facts.context;
                self.warm(of);
            }
            self.tell_tags(number, sent.notices);
        }
        was_busy |= self.advance_lists(is_looked_at);
        self.break_overrun();
        was_busy |= self.adapter.flush();
        self.say_notices();
        was_busy
    }

    /// Says the asynchronous events that have come up.
    fn say_notices(&mut self) {
        let mut notices = Vec::new();
        self.adapter.say_notices(|notice| notices.push(*notice));
        notices.iter().for_each(|notice| self.count_notice(notice));
    }

    /// Counts an asynchronous event at the object that it is about: its end tells the program the
    /// number.
    fn count_notice(&mut self, notice: &AsyncNotice) {
        let is_it =
            |context: i32, element: u64| context == notice.context && element == notice.element;
        match notice.event_type {
            event::CQ_ERR => {
                for cq in self.adapter.cqs.values_mut() {
                    cq.async_events += u32::from(is_it(cq.context, cq.user_handle));
                }
            }
            event::SRQ_ERR | event::SRQ_LIMIT_REACHED => {
                for srq in self.adapter.srqs.values_mut() {
                    srq.async_events += u32::from(is_it(srq.context, srq.user_handle));
                }
            }
            of_port if event::OF_PORTS.contains(&of_port) => {}
            event::DEVICE_FATAL => {}
            _ => {
                for qp in self.qps.values_mut() {
                    qp.async_events += u32::from(is_it(qp.facts.context, qp.facts.user_handle));
                }
            }
        }
    }

    /// Reads the program's records in these contexts: what it has posted, taken and armed. `false`:
    /// there are none.
    fn look(&mut self, is_looked_at: impl Fn(i32) -> bool) -> bool {
        let Function { adapter, qps, records, values, .. } = self;
        let Adapter { cqs, srqs, memory, contexts, settings, .. } = adapter;
        // A card learns of requests and of arming by a register alone.
        let needs_doorbell = settings.knobs.needs_doorbell;
        let is_told = |context: i32| {
            !needs_doorbell || contexts.get(&context).is_some_and(|context| context.has_rung)
        };
        let mut qps: Vec<_> =
            qps.values_mut().filter(|qp| is_looked_at(qp.facts.context)).collect();
        let mut cqs: Vec<_> = cqs.values_mut().filter(|cq| is_looked_at(cq.context)).collect();
        let mut srqs: Vec<_> = srqs.values_mut().filter(|srq| is_looked_at(srq.context)).collect();
        records.clear();
        values.clear();
        records.extend(qps.iter().map(|qp| qp.facts.record));
        records.extend(cqs.iter().map(|cq| cq.place.record));
        records.extend(srqs.iter().map(|srq| srq.place.record));
        if records.is_empty() {
            return false;
        }
        if let Err(error) = memory.pairs(records, values) {
            adapter.note(error);
            return false;
        }
        let mut values = values.iter().copied();
        for qp in &mut qps {
            if let Some(record) = values.next().flatten() {
                qp.hear_record(record, is_told(qp.facts.context));
            }
        }
        for cq in &mut cqs {
            match values.next().flatten() {
                Some(record) => cq.hear(record, is_told(cq.context)),
                // The program has freed its memory, or has become another one by execve(2).
                None => cq.is_overrun = true,
            }
        }
        for srq in &mut srqs {
            if let Some([posted, _]) = values.next().flatten() {
                srq.hear(posted);
            }
        }
        for context in contexts.iter_mut().filter(|(fd, _)| is_looked_at(**fd)) {
            context.1.has_rung = false;
        }
        true
    }

    /// Gives the lists of tags what the program has posted, and carries out what they decide.
    fn advance_lists(&mut self, is_looked_at: impl Fn(i32) -> bool) -> bool {
        let looked_at = self.adapter.srqs.iter().filter(|(_, srq)| is_looked_at(srq.context));
        let numbers: Vec<u32> = looked_at.map(|(number, _)| *number).collect();
        let mut was_busy = false;
        for number in numbers {
            let is_busy = self.advance_list(number);
            was_busy |= is_busy;
            let of = self.adapter.srqs.get(&number).filter(|_| is_busy).map(|srq| srq.context);
            if let Some(of) = of {
                self.warm(of);
            }
        }
        was_busy
    }

    fn advance_list(&mut self, number: u32) -> bool {
        let Adapter { srqs, memory, .. } = &mut self.adapter;
        let Some(srq) = srqs.get_mut(&number) else { return false };
        if srq.tags.is_none() {
            if srq.is_below_limit() {
                let context = srq.context;
                let element = srq.user_handle;
                let event_type = event::SRQ_LIMIT_REACHED;
                self.adapter.notices.push(AsyncNotice { context, element, event_type });
            }
            return false;
        }
        let mut was_busy = false;
        while let Ok(Some(receive)) = srq.take(memory) {
            was_busy = true;
            if let Some(tags) = &mut srq.tags {
                tags.post(receive);
            }
        }
        let Some(tags) = &mut srq.tags else { return was_busy };
        tags.nic.tick();
        was_busy |= tags.has_work();
        while let Some(work) = self.next_work(number) {
            self.carry_out(number, work);
        }
        self.complete_list(number);
        was_busy
    }

    fn next_work(&mut self, srq: u32) -> Option<Work> {
        self.adapter.srqs.get_mut(&srq)?.tags.as_mut()?.next_work()
    }

    /// Shows the program what its list of tags has decided.
    fn complete_list(&mut self, number: u32) {
        let qps = &self.qps;
        let peer_of = |qpn: u32| {
            qps.get(&qpn).map_or((0, 0), |qp| {
                let attributes = &qp.attributes.0;
                (attributes.dest_qp_num, attributes.dest.dlid)
            })
        };
        loop {
            let Adapter { srqs, counts, .. } = &mut self.adapter;
            let Some(srq) = srqs.get_mut(&number) else { return };
            let user_index = srq.user_index;
            let Some(tags) = &mut srq.tags else { return };
            let cq = tags.cq;
            let Some(cqe) = tags.next_completion(user_index, peer_of, counts) else { return };
            self.adapter.complete(cq, &cqe);
        }
    }

    /// Does what a list of tags asks for.
    fn carry_out(&mut self, srq: u32, work: Work) {
        match work {
            Work::Read { handle, queue_pair, remote } => {
                let tags = self.adapter.srqs.get_mut(&srq).and_then(|srq| srq.tags.as_mut());
                let into = tags.and_then(|tags| tags.buffer(handle));
                let qp = self.qps.get_mut(&queue_pair.0).filter(|qp| qp.state != State::Error);
                match (qp, into) {
                    (Some(qp), Some(into)) => qp.tag_requests.push_back(TagRequest::Read {
                        handle,
                        remote: RemoteAddress { at: remote.va, rkey: remote.rkey },
                        into,
                        length: remote.len,
                        done: 0,
                    }),
                    _ => self.tell_list(srq, TagNotice::ReadDone(handle, false)),
                }
            }
            Work::Fin { handle, queue_pair, headers, length } => {
                let qp = self.qps.get_mut(&queue_pair.0).filter(|qp| qp.state != State::Error);
                match qp {
                    Some(qp) => qp
                        .tag_requests
                        .push_back(TagRequest::Fin { handle, bytes: headers[..length].to_vec() }),
                    None => self.tell_list(srq, TagNotice::FinDone(handle, false)),
                }
            }
            Work::Broken { queue_pair, .. } => {
                if let Some(qp) = self.qps.get_mut(&queue_pair.0) {
                    qp.notice(&mut self.adapter, event::QP_FATAL);
                    let notices = qp.enter_error(&mut self.adapter);
                    self.tell_tags(queue_pair.0, notices);
                }
            }
        }
    }

    /// Tells the list of tags of a queue pair what has become of its work.
    pub(crate) fn tell_tags(&mut self, qpn: u32, notices: Vec<TagNotice>) {
        let Some(qp) = self.qps.get(&qpn) else { return };
        let Receives::Shared(srq) = qp.receives else { return };
        let is_broken = qp.state == State::Error;
        let mut earlier: Vec<TagNotice> = Vec::new();
        for notice in notices {
            // Each part of a READ says that it has failed.
            if !earlier.contains(&notice) {
                earlier.push(notice);
                self.tell_list(srq, notice);
            }
        }
        if is_broken
            && let Some(tags) = self.adapter.srqs.get_mut(&srq).and_then(|srq| srq.tags.as_mut())
        {
            tags.nic.queue_pair_down(QueuePair(qpn));
        }
    }

    fn tell_list(&mut self, srq: u32, notice: TagNotice) {
        let tags = self.adapter.srqs.get_mut(&srq).and_then(|srq| srq.tags.as_mut());
        let Some(tags) = tags else { return };
        match notice {
            TagNotice::ReadDone(handle, is_ok) => tags.nic.read_done(handle, is_ok),
            TagNotice::FinDone(handle, is_ok) => tags.nic.fin_done(handle, is_ok),
        }
    }

    /// A queue pair was destroyed or reset: its list of tags forgets it.
    pub(crate) fn forget_pair(&mut self, qpn: u32, srq: u32) {
        let tags = self.adapter.srqs.get_mut(&srq).and_then(|srq| srq.tags.as_mut());
        if let Some(tags) = tags {
            tags.nic.queue_pair_down(QueuePair(qpn));
            tags.nic.forget(QueuePair(qpn));
        }
    }
}
