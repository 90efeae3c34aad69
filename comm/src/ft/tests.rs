//! Agreements without a network, in many random orders of messages and deaths.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::agree::{AgreeKind, AgreeMessage, Agreement, Value, senders};
use super::ranks::Ranks;
use crate::group::Group;
use crate::life::epoch;

enum Event {
    Message(AgreeMessage),
    Down,
}

/// The members, and the messages under way between each two of them, in order.
struct Job {
    members: Vec<Option<Agreement>>,
    /// The first decision of each member, with which its caller has gone on.
    decided: Vec<Option<Value>>,
    channels: BTreeMap<(u32, u32), VecDeque<Event>>,
    /// The pairs of members that learn of each other's death; `None` if all learn of each one.
    connected: Option<BTreeSet<[u32; 2]>>,
    random: u64,
}

impl Job {
    fn new(size: u32, seed: u64) -> Self {
        let members = (0..size).map(|own| Some(Agreement::new(size, own))).collect();
        let decided = vec![None; size as usize];
        Job { members, decided, channels: BTreeMap::new(), connected: None, random: seed }
    }

    /// A member learns of the death of another one from now on.
    fn connect(&mut self, rank: u32, to: u32) {
        if let Some(connected) = &mut self.connected
            && connected.insert([rank.min(to), rank.max(to)])
            && self.members[to as usize].is_none()
        {
            self.channels.entry((to, rank)).or_default().push_back(Event::Down);
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        let nobody = Group::new([]);
        self.random = epoch(&[self.random], &nobody, &nobody);
        usize::try_from(self.random % limit as u64).unwrap()
    }

    fn flush(&mut self, rank: u32) {
        let Some(member) = &mut self.members[rank as usize] else { return };
        let messages = member.take_messages();
        let decided = &mut self.decided[rank as usize];
        *decided = decided.take().or_else(|| member.decision().cloned());
        for (to, message) in messages {
            self.channels.entry((rank, to)).or_default().push_back(Event::Message(message));
            self.connect(rank, to);
        }
    }

    /// Kills a member. Its last messages may be lost, a different number for each receiver.
    fn kill(&mut self, rank: u32) {
        self.members[rank as usize] = None;
        for to in 0..u32::try_from(self.members.len()).unwrap() {
            let length = self.channels.entry((rank, to)).or_default().len();
            let kept = self.below(length + 1);
            let channel = self.channels.entry((rank, to)).or_default();
            channel.truncate(kept);
            let pair = [rank.min(to), rank.max(to)];
            if self.connected.as_ref().is_none_or(|connected| connected.contains(&pair)) {
                channel.push_back(Event::Down);
            }
        }
    }

    /// Delivers a message or the news of a death; whether there was one.
    fn step(&mut self) -> bool {
        let busy: Vec<(u32, u32)> = self
            .channels
            .iter()
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(at, _)| *at)
            .collect();
        if busy.is_empty() {
            return false;
        }
        let (from, to) = busy[self.below(busy.len())];
        let event = self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if let (Some(member), Some(event)) = (&mut self.members[to as usize], event) {
            match event {
                Event::Message(message) => member.receive(from, &message),
                Event::Down => member.die(from),
            }
        }
        self.flush(to);
        true
    }

    /// Kills a member whose death all others know, so that the agreement begins at a later ballot.
    fn with_known_death(mut self) -> Self {
        let dead = self.below(self.members.len());
        self.members[dead] = None;
        let dead = u32::try_from(dead).unwrap();
        self.members.iter_mut().flatten().for_each(|member| member.die(dead));
        self
    }

    /// Lets all members vote, in any order, and some die. Returns the decisions of the living
    /// members.
    fn run(mut self, deaths: usize) -> Vec<Option<Value>> {
        let size = self.members.len();
        let mut to_vote: Vec<u32> = (0..u32::try_from(size).unwrap()).collect();
        let mut deaths = deaths;
        loop {
            let choice = self.below(80);
            if choice < 30 && !to_vote.is_empty() {
                let at = self.below(to_vote.len());
                let rank = to_vote.swap_remove(at);
                if let Some(member) = &mut self.members[rank as usize] {
                    member.vote(!(1 << rank), 0, &[]);
                    let size = u32::try_from(size).unwrap();
                    senders(rank, size).for_each(|from| self.connect(rank, from));
                }
                self.flush(rank);
            } else if choice == 30 && deaths > 0 {
                deaths -= 1;
                let rank = u32::try_from(self.below(size)).unwrap();
                if self.members[rank as usize].is_some() {
                    self.kill(rank);
                }
            } else if !self.step() && to_vote.is_empty() {
                break;
            }
        }
        let living = self.members.iter().zip(self.decided).filter(|(member, _)| member.is_some());
        living.map(|(_, decided)| decided).collect()
    }
}

/// The first seed under which the living members don't all have the same decision. `connects`:
/// members learn of the deaths of those alone that they exchange messages with.
fn first_bad(seeds: u64, sizes: u64, connects: bool) -> Option<u64> {
    (0..seeds).find(|seed| {
        let size = 2 + u32::try_from(seed % sizes).unwrap();
        let job = Job { connected: connects.then(BTreeSet::new), ..Job::new(size, *seed) };
        let job = if seed % 5 < 2 { job.with_known_death() } else { job };
        let ends = job.run(usize::try_from(seed % 4).unwrap());
        ends.iter().any(Option::is_none) || ends.windows(2).any(|two| two[0] != two[1])
    })
}

#[test]
fn all_living_members_decide_alike() {
    let seeds = std::env::var("TAGMATCH_AGREEMENT_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    assert_eq!(first_bad(seeds.unwrap_or(60_000), 6, false), None);
}

#[test]
fn all_living_members_decide_alike_though_few_are_connected_to_a_dead_one() {
    assert_eq!(first_bad(20_000, 16, true), None);
}

/// The message of a member that knows these deaths and has gathered these contributors.
fn message(kind: AgreeKind, ballot: u32, dead: &[u32], contributors: &[u32]) -> AgreeMessage {
    let set = |ranks: &[u32]| Ranks::of(3, ranks);
    let value = Value {
        flags: 1,
        low: 0,
        contributors: set(contributors),
        acknowledged: set(&[]),
        dead: set(&[]),
    };
    AgreeMessage { kind, ballot, dead: set(dead), value }
}

#[test]
fn a_member_that_is_said_to_be_dead_does_not_believe_it() {
    let mut agreement = Agreement::new(3, 0);
    agreement.receive(1, &message(AgreeKind::Gathered, 1, &[0, 2], &[1]));
    // The process itself has not voted yet.
    assert_eq!(agreement.decision(), None);
    agreement.vote(1, 0, &[]);
    agreement.receive(1, &message(AgreeKind::Gathered, 1, &[0, 2], &[1]));
    let decided = agreement.decision().unwrap();
    assert!(!decided.dead.contains(0) && decided.dead.contains(2));
    assert!(agreement.take_messages().iter().all(|(_, message)| !message.dead.contains(0)));
}

#[test]
fn a_member_that_its_leader_knows_to_be_dead_is_dead_for_all_even_if_it_has_contributed() {
    let mut agreement = Agreement::new(3, 0);
    agreement.vote(1, 0, &[]);
    agreement.die(2);
    agreement.receive(1, &message(AgreeKind::Gathered, 1, &[2], &[1, 2]));
    let decided = agreement.decision().unwrap();
    assert!(decided.contributors.contains(2) && decided.dead.contains(2));
    assert_eq!(decided.living(0..3).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_member_reports_again_at_each_ballot() {
    let mut agreement = Agreement::new(6, 5);
    agreement.vote(1, 0, &[]);
    agreement.take_messages();
    for (dead, ballot) in [(3, 1), (0, 2)] {
        agreement.die(dead);
        let sent = agreement.take_messages();
        let is_report = |(_, message): &&(u32, AgreeMessage)| message.kind != AgreeKind::Asked;
        let reports = sent.iter().filter(is_report).map(|(to, message)| (*to, message.ballot));
        let reports: Vec<_> = reports.collect();
        // The parent in the tree has dropped what it had gathered.
        assert_eq!(reports, [(2, ballot)]);
    }
}

#[test]
fn a_message_says_who_is_dead() {
    let dead_by = |kind| {
        let value = Value {
            flags: 0,
            low: 0,
            contributors: Ranks::of(4, &[0, 1, 2]),
            acknowledged: Ranks::none(4),
            dead: Ranks::of(4, &[1]),
        };
        let message = AgreeMessage { kind, ballot: 1, dead: Ranks::of(4, &[2]), value };
        (0..4).filter(|rank| message.says_dead(*rank)).collect::<Vec<_>>()
    };
    assert_eq!([AgreeKind::Gathered, AgreeKind::Asked].map(dead_by), [[1, 2], [1, 2]]);
    // A decision is made without those that are dead.
    assert_eq!([AgreeKind::Decided, AgreeKind::Reported].map(dead_by), [[1, 2, 3], [1, 2, 3]]);
}
