//! A receiver with a NIC, two senders whose messages arrive through its list, a sender whose
//! messages don't, and a judge that knows at each moment what has really happened.

mod judge;
mod nic;

use std::collections::{BTreeMap, VecDeque};

use tagmatch_shadow::table::State;
use tagmatch_shadow::{CancelAnswer, Deleted, Op, Refusal, Shadow, ShadowConfig, Take, Why};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};
use tagmatch_testkit::random::Random;

use judge::Judge;
use nic::{Answer, Decision, Nic};

/// Messages of senders 0 and 1 arrive through the list, those of [`OTHER_SENDER`] don't.
const SENDERS: usize = 3;
const OTHER_SENDER: usize = 2;
const IDS: u32 = 40;

#[derive(Clone, Copy, Debug)]
struct Message {
    tag: u64,
    sender: usize,
}

impl Message {
    fn matches(self, pattern: &Pattern) -> bool {
        pattern.matches(Tag(self.tag), source(self.sender))
    }
}

fn source(sender: usize) -> SourceId {
    SourceId(u32::try_from(sender).unwrap())
}

/// The pattern as the NIC and the shadow know it: without a source.
pub(crate) fn by_tag(pattern: &Pattern) -> Pattern {
    Pattern::new(pattern.tag(), pattern.mask())
}

/// The messages of one sender that software has still to search for.
#[derive(Debug, Default)]
struct Incoming {
    messages: VecDeque<usize>,
    /// The receive that the first message waits for.
    waits: Option<u32>,
}

/// One run. Each wrong behaviour ends it with an `Err` that says what is wrong.
pub(crate) struct World {
    random: Random,
    shadow: Shadow,
    nic: Nic,
    judge: Judge,
    messages: Vec<Message>,
    incoming: [Incoming; SENDERS],
    /// For each receive, the senders whose first message waits for it, in order.
    waiters: BTreeMap<u32, VecDeque<usize>>,
    /// The posted receives: id, the judge's number, pattern.
    posted: Vec<(u32, usize, Pattern)>,
    /// Messages that matched no posted receive, in order.
    stored: Vec<usize>,
    free_ids: Vec<u32>,
    slots: u32,
    sync_every: u16,
    searched: u64,
    told: u64,
    needless_refusals: u64,
    has_other: bool,
    /// Some receives name a sender, and the shadow gets their pattern without it.
    has_sources: bool,
    log: bool,
}

type Outcome = Result<(), String>;

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let slots = u32::try_from(1 + random.below(6)).unwrap();
        let operations = u32::try_from(2 + random.below(12)).unwrap();
        let first_count = random.pick(&[0, 5, u16::MAX, u16::MAX - 3]);
        let sync_every = random.pick(&[2, 5, 1 << 14]);
        let wakes = random.below(2) == 0;
        let needless_refusals = random.pick(&[0, 0, 10]);
        let has_other = random.below(2) == 0;
        let mut shadow = Shadow::new(&ShadowConfig {
            slots,
            operations,
            sync_every,
            first_count,
            threshold: 1024,
            read_max: 1 << 20,
            source_bits: TagMask(0xf0),
        });
        if has_other && random.below(4) == 0 {
            shadow.other_device();
        }
        World {
            random,
            shadow,
            nic: Nic::new(slots, operations, first_count, wakes, needless_refusals),
            judge: Judge::default(),
            messages: vec![],
            incoming: Default::default(),
            waiters: BTreeMap::new(),
            posted: vec![],
            stored: vec![],
            free_ids: (0..IDS).collect(),
            slots,
            sync_every,
            searched: u64::from(first_count),
            told: u64::from(first_count),
            needless_refusals,
            has_other,
            has_sources: seed % 2 == 1,
            log: std::env::var_os("SHADOW_LOG").is_some(),
        }
    }

    pub(crate) fn run(mut self, steps: u32) -> Outcome {
        for _ in 0..steps {
            self.step()?;
            self.drain()?;
        }
        self.settle()?;
        self.check_settled()
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.log {
            println!("{}", what());
        }
    }

    fn step(&mut self) -> Outcome {
        // The shadow learns late or never that there is another device. It must be right even
        // without the policy that makes such conflicts rare.
        if self.has_other && self.random.below(1000) == 0 {
            self.shadow.other_device();
        }
        match self.random.below(20) {
            0..4 => self.post(),
            4..7 => self.send(),
            7..10 => self.execute(),
            10..13 => self.decision(),
            13..15 => self.answer(),
            15..17 => self.landed(),
            17..19 => {
                let sender = self.random.index(SENDERS);
                self.search(sender)
            }
            _ => self.cancel(),
        }
    }

    fn post(&mut self) -> Outcome {
        let sender = self.random.below(SENDERS as u64);
        let tag = sender << 4 | self.random.below(2);
        let mask = self.random.pick(&[u64::MAX, u64::MAX, !0xf0, !0xf, !0xff]);
        let mut pattern = Pattern::new(Tag(tag), TagMask(mask));
        if self.has_sources && self.random.below(3) == 0 {
            pattern = pattern.from_source(source(usize::try_from(sender).unwrap()));
        }
        let found = self.stored.iter().position(|m| self.messages[*m].matches(&pattern));
        let number = self.judge.posted(pattern);
        if let Some(place) = found {
            let message = self.stored.remove(place);
            return self.judge.delivered(number, message);
        }
        let Some(id) = self.free_ids.pop() else {
            return self.judge.cancelled(number);
        };
        let length = self.random.pick(&[16, 2048, 2048, 2048, 2048]);
        self.say(|| format!("post id {id} receive {number} {pattern:?} {length}"));
        self.posted.push((id, number, pattern));
        self.shadow.post(id, &by_tag(&pattern), length, true);
        Ok(())
    }

    fn send(&mut self) -> Outcome {
        let senders = if self.has_other { SENDERS } else { OTHER_SENDER };
        let sender = self.random.index(senders);
        // Some senders put another sender into the tag.
        let lies = self.has_sources && self.random.below(8) == 0;
        let named = if lies { self.random.index(senders) } else { sender };
        let tag = (named as u64) << 4 | self.random.below(2);
        let message = self.messages.len();
        self.messages.push(Message { tag, sender });
        self.judge.sent(message, tag, source(sender), sender != OTHER_SENDER);
        self.say(|| format!("send {message} from {sender} tag {tag:#x}"));
        if sender == OTHER_SENDER {
            self.incoming[sender].messages.push_back(message);
            return self.search(sender);
        }
        let Some(receive) = self.nic.arrive(message, tag) else { return Ok(()) };
        self.say(|| format!("  NIC gives it to receive {receive}"));
        self.judge.matched(receive, message)
    }

    fn execute(&mut self) -> Outcome {
        let executed = self.nic.execute();
        self.say(|| format!("NIC executes an operation, removes {executed:?}"));
        Ok(())
    }

    fn decision(&mut self) -> Outcome {
        let Some(decision) = self.nic.decision() else { return Ok(()) };
        self.say(|| format!("{decision:?}"));
        match decision {
            Decision::Matched { slot, message } => {
                let id = self.shadow.matched(slot).map_err(|e| e.to_string())?;
                let number = self.judge.receive_of(message);
                // It isn't posted any more if the answer to a late delete came before.
                if let Some(place) = self.posted.iter().position(|(_, n, _)| Some(*n) == number) {
                    let (posted, ..) = self.posted.remove(place);
                    if posted != id {
                        return Err(format!("slot {slot} is said to be {id}, and is {posted}"));
                    }
                    self.let_go(id)?;
                }
                Ok(())
            }
            Decision::Unexpected { message } => {
                self.shadow.unexpected_reported();
                let sender = self.messages[message].sender;
                self.incoming[sender].messages.push_back(message);
                if self.random.below(2) == 0 { self.search(sender) } else { Ok(()) }
            }
        }
    }

    fn answer(&mut self) -> Outcome {
        let Some(answer) = self.nic.answer() else { return Ok(()) };
        self.say(|| format!("{answer:?}"));
        match answer {
            Answer::Synced => self.shadow.synced().map_err(|e| e.to_string()),
            Answer::Added { slot } => self.shadow.added(slot).map_err(|e| e.to_string()),
            Answer::Lost { slot } => {
                let lost = self.shadow.lost(slot).map_err(|e| e.to_string())?;
                let Some(id) = lost.id else { return Ok(()) };
                self.unpost(id)?;
                self.let_go(id)
            }
            Answer::Deleted { slot } => {
                match self.shadow.deleted(slot).map_err(|e| e.to_string())? {
                    Deleted::Again { .. } | Deleted::Ignored => Ok(()),
                    Deleted::Cancelled { id } => {
                        let number = self.unpost(id)?;
                        self.free_ids.push(id);
                        self.judge.cancelled(number)?;
                        self.let_go(id)
                    }
                    Deleted::ForMessage { id } => self.give(id),
                }
            }
        }
    }

    /// Gives the receive to the first message that waits for it.
    fn give(&mut self, id: u32) -> Outcome {
        let number = self.unpost(id)?;
        self.free_ids.push(id);
        let sender = self.waiters.get_mut(&id).and_then(VecDeque::pop_front);
        let sender = sender.ok_or("a receive for a message, and none waits for it")?;
        self.incoming[sender].waits = None;
        let message = self.incoming[sender].messages.pop_front().ok_or("nothing waits")?;
        self.judge.delivered(number, message)?;
        self.finish(sender);
        self.let_go(id)?;
        self.search(sender)
    }

    fn landed(&mut self) -> Outcome {
        let Some(slot) = self.nic.landed(&mut self.random) else { return Ok(()) };
        self.say(|| format!("landed {slot}"));
        let id = self.shadow.landed(slot).map_err(|e| e.to_string())?;
        self.free_ids.push(id);
        Ok(())
    }

    /// Searches the posted receives for the messages of one sender.
    fn search(&mut self, sender: usize) -> Outcome {
        while let Some(&message) = self.incoming[sender].messages.front() {
            if self.incoming[sender].waits.is_some() {
                return Ok(());
            }
            let tag = Tag(self.messages[message].tag);
            let first = self.posted.iter().find(|(_, _, p)| self.messages[message].matches(p));
            let Some(&(id, number, _)) = first else {
                self.say(|| format!("message {message} is stored"));
                self.stored.push(message);
                self.judge.stored(message);
                self.incoming[sender].messages.pop_front();
                self.shadow.source_seen(tag, sender != OTHER_SENDER);
                self.finish(sender);
                continue;
            };
            let take = self.shadow.take(id, sender != OTHER_SENDER);
            self.say(|| format!("message {message} takes id {id} receive {number}: {take:?}"));
            if take == Take::Wait {
                self.incoming[sender].waits = Some(id);
                self.waiters.entry(id).or_default().push_back(sender);
                return Ok(());
            }
            self.unpost(id)?;
            self.free_ids.push(id);
            self.incoming[sender].messages.pop_front();
            self.judge.delivered(number, message)?;
            self.finish(sender);
            self.let_go(id)?;
        }
        Ok(())
    }

    fn finish(&mut self, sender: usize) {
        if sender != OTHER_SENDER {
            self.searched += 1;
            self.shadow.searched();
        }
    }

    /// The receive has left: the messages that wait for it are searched for again.
    fn let_go(&mut self, id: u32) -> Outcome {
        for sender in self.waiters.remove(&id).unwrap_or_default() {
            self.incoming[sender].waits = None;
            self.search(sender)?;
        }
        Ok(())
    }

    fn unpost(&mut self, id: u32) -> Result<usize, String> {
        let place = self.posted.iter().position(|(posted, ..)| *posted == id);
        let place = place.ok_or_else(|| format!("{id} is not posted"))?;
        Ok(self.posted.remove(place).1)
    }

    fn cancel(&mut self) -> Outcome {
        if self.posted.is_empty() {
            return Ok(());
        }
        let (id, number, _) = self.posted[self.random.index(self.posted.len())];
        let cancel = self.shadow.cancel(id);
        self.say(|| format!("cancel id {id} receive {number}: {cancel:?}"));
        match cancel {
            CancelAnswer::Software => {
                self.unpost(id)?;
                self.free_ids.push(id);
                self.judge.cancelled(number)
            }
            CancelAnswer::Asked => {
                self.judge.cancel(number);
                Ok(())
            }
            CancelAnswer::TooLate => Ok(()),
        }
    }

    /// Hands all due operations to the NIC.
    fn drain(&mut self) -> Outcome {
        while let Some(due) = self.shadow.next_op() {
            let op = due.op();
            let receive = match op {
                Op::Add { id, .. } => {
                    let posted = self.posted.iter().find(|(posted, ..)| *posted == id);
                    let (_, number, pattern) = posted.ok_or(format!("{id} added, not posted"))?;
                    Some((*pattern, *number))
                }
                _ => None,
            };
            match self.nic.hand(op, receive, &mut self.random) {
                Ok(handle) => {
                    let (Op::Add { count, .. } | Op::Delete { count, .. } | Op::Sync { count }) =
                        op;
                    let now = u16::try_from(self.searched & 0xffff).unwrap();
                    self.told = self.searched - u64::from(now.wrapping_sub(count));
                    due.accepted(handle);
                    self.say(|| format!("  {op:?}"));
                }
                Err(refusal) => {
                    let needless = self.needless_refusals == 0 && !matches!(op, Op::Sync { .. });
                    if needless || refusal == Refusal::ListFull {
                        return Err(format!("{op:?} was refused: {refusal:?}"));
                    }
                    due.refused(refusal);
                }
            }
        }
        if self.shadow.counters().broken {
            return Err(
                "the NIC kept its contract, but the shadow counts the list as broken".into()
            );
        }
        let behind = self.searched - self.told;
        if behind >= u64::from(self.sync_every)
            && !self.nic.is_near_full()
            && self.needless_refusals == 0
        {
            return Err(format!("the NIC was not told of {behind} messages"));
        }
        self.judge.wanted = self
            .posted
            .iter()
            .filter(|(id, ..)| self.waiters.contains_key(id))
            .map(|(_, number, _)| *number)
            .collect();
        Ok(())
    }

    /// Runs the NIC and all searches until nothing is left to do.
    fn settle(&mut self) -> Outcome {
        self.nic.end_needless_refusals();
        for _ in 0..400 {
            for what in
                [World::execute, World::decision, World::answer, World::landed, World::decision]
            {
                what(self)?;
                self.drain()?;
            }
            for sender in 0..SENDERS {
                self.search(sender)?;
                self.drain()?;
            }
            // A call, so that the shadow tries refused operations again.
            self.shadow.end(u32::MAX);
            self.drain()?;
        }
        Ok(())
    }

    /// Checks that nothing waits, and that each receive in software is there for a good reason.
    fn check_settled(&self) -> Outcome {
        if let Some(incoming) = self.incoming.iter().find(|incoming| !incoming.messages.is_empty())
        {
            return Err(format!("at the end, messages are left: {incoming:?}"));
        }
        if !self.waiters.is_empty() {
            return Err(format!("at the end, messages wait: {:?}", self.waiters));
        }
        let states: Vec<State> = (0..self.slots).filter_map(|s| self.shadow.state(s)).collect();
        if states.iter().any(|state| ![State::Free, State::Active].contains(state)) {
            return Err(format!("at the end, the slots are {states:?}"));
        }
        let active = states.iter().filter(|state| **state == State::Active).count();
        if active != self.nic.listed() || active != self.shadow.counters().slots {
            return Err(format!("{active} active, the NIC holds {}", self.nic.listed()));
        }
        for (at, (id, _, pattern)) in self.posted.iter().enumerate() {
            let right = match self.shadow.why(*id) {
                Some(Why::ListFull) => active == self.slots as usize || self.nic.is_near_full(),
                Some(Why::Order) => self.posted[..at].iter().any(|(older, _, other)| {
                    by_tag(other).overlaps(&by_tag(pattern)) && self.shadow.why(*older).is_some()
                }),
                why => why.is_none_or(|why| [Why::TooSmall, Why::Source].contains(&why)),
            };
            if !right {
                let why = self.shadow.why(*id);
                return Err(format!(
                    "{id} is in software for {why:?}: {:?}",
                    self.shadow.counters()
                ));
            }
        }
        let matched =
            |m: &&usize| self.posted.iter().any(|(_, _, p)| self.messages[**m].matches(p));
        if let Some(message) = self.stored.iter().find(matched) {
            return Err(format!(
                "at the end, message {message} is stored although a posted receive matches it"
            ));
        }
        let ids = self.free_ids.len() + self.posted.len();
        if ids != IDS as usize || self.shadow.counters().receives != self.posted.len() {
            return Err(format!("{ids} receives of {IDS} are left"));
        }
        self.judge.all_ended(self.posted.iter().map(|(_, number, _)| *number))
    }
}
