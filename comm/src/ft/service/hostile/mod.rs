//! The service of a process, and another process that sends it whatever it likes.

mod messages;
mod scripted_net;

use std::sync::Arc;

use tagmatch::TagLayout;
use tagmatch_testkit::hostile::{Legality, Message, Room, flood, try_all};

use super::*;
use crate::alloc::{FreedId, OwnedId, Progress, Role, Senders};
use crate::ft::control::Asked;
use crate::ft::doubts::Doubt;
use crate::mailbox::{Body, Letter, Opened};
use crate::names::TestDirectory;
use crate::net::Directory;
use crate::settings::Algorithms;
use scripted_net::ScriptedNet;

const OWN: ProcessId = ProcessId(0);
/// The process that this one exchanges messages with.
const PARTNER: ProcessId = ProcessId(1);
const BYSTANDER: ProcessId = ProcessId(2);
/// A process that is down.
const LOST: ProcessId = ProcessId(3);
/// A process of another job.
const FOREIGN: ProcessId = ProcessId(4);
/// The numbers of this process's mailboxes, and of the line's other end.
const PORT: u64 = 0;
const LINE: u64 = 1;
const THEIR_LINE: u64 = 50;

/// The communicators, allocations and processes that messages name.
struct ServiceSurroundings {
    directory: TestDirectory,
    group: Arc<Group>,
    world: Key,
    /// A communicator that this process never had.
    other: Key,
    allocation: Key,
    settings: CommonSettings,
    /// The number of the question to the partner.
    question: u64,
    /// The use of an id that this process has.
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceSituation {
    /// Nothing is under way.
    Idle,
    /// The partner is asked about the lost process, and there is an agreement, an allocation, a
    /// port, and a line to the partner.
    Busy,
    /// The partner is asked about ids.
    Asking,
}

fn surroundings() -> ServiceSurroundings {
    let mut directory = TestDirectory::new([4, 2], OWN.0);
    let name = TestDirectory::new([4, 2], 4).name(ProcessId(0)).unwrap();
    assert_eq!(directory.admit(&name), Ok(FOREIGN));
    let key = |context, epoch| Key { context, epoch };
    let settings =
        CommonSettings::new(IdLayout::BITS_16, 4, TagLayout::MPI, &Algorithms::default(), false);
    ServiceSurroundings {
        directory,
        group: Arc::new(Group::new((0..4).map(ProcessId))),
        world: Key::new(IdLayout::BITS_16.world(), 6),
        other: key(48, 7),
        allocation: key(64, 8),
        settings,
        question: 1,
        used: 8,
    }
}

struct ServiceRoom {
    service: Service<ScriptedNet>,
    net: ScriptedNet,
    lives: Vec<Arc<Life>>,
    mailboxes: Arc<Mailboxes>,
    /// The sender of the last message.
    sender: Option<ProcessId>,
    opened: Vec<Opened>,
    used: Option<OwnedId>,
}

impl ServiceRoom {
    fn take_in(&mut self, from: ProcessId, control: &Control) {
        let bytes = control.to_bytes(&self.net);
        self.net.arrive(from, &bytes);
        self.service.look(&mut self.net);
    }

    fn begin(&mut self, around: &ServiceSurroundings, allocator: &Allocator) {
        let Self { service, net, lives, mailboxes, opened, .. } = self;
        service.enter(around.allocation);
        service.vote(net, &lives[0], Vote { number: 0, low: 0, flags: 1 });
        opened.push(mailboxes.open_port());
        let line = mailboxes.call(PARTNER, 9);
        assert_eq!([opened[0].number(), line.number()], [PORT, LINE]);
        opened.push(line);
        let body = Body::Said(vec![]);
        let answer = Letter { to: LINE, from: THEIR_LINE, body };
        self.take_in(PARTNER, &Control::Letter(answer));
        self.take_in(BYSTANDER, &Control::Doubt(Doubt::Asked(PARTNER)));
        self.used = Some(own_id(allocator, around));
    }
}

/// Two processes are asked about more ids than one word of the answer has bits.
fn free_ids(allocator: &Allocator) {
    let group = Arc::new(Group::new([PARTNER, BYSTANDER]));
    for prefix in 100..165 {
        let senders = vec![Senders { creation: 4, group: Arc::clone(&group) }];
        allocator.with_rest(|rest| rest.add(FreedId { prefix, senders, used: None }));
    }
    allocator.with_rest(|rest| rest.want());
}

/// An id that the members of the world settle together.
fn own_id(allocator: &Allocator, around: &ServiceSurroundings) -> OwnedId {
    let allocation = allocator.begin(IdLayout::BITS_16.world(), 0, Role::Member);
    let mut allocation = allocation.for_members([7, around.used], &around.group);
    let offered = allocation.offer();
    match allocation.conclude(&offered) {
        Ok(Progress::Done(Some(id))) => id,
        other => panic!("{other:?}"),
    }
}

impl Room for ServiceRoom {
    type Situation = ServiceSituation;
    type Sender = ProcessId;

    fn enter(situation: ServiceSituation) -> Self {
        let around = surroundings();
        let ids = IdLayout::BITS_16;
        let allocator = Allocator::new(ids, 4).unwrap();
        let net = ScriptedNet::new(surroundings().directory);
        let mailboxes = Arc::new(Mailboxes::new(None));
        let layouts = (ids, TagLayout::MPI);
        let service = Service::new(&net, around.settings, layouts, &allocator, &mailboxes);
        let world = Life::new(ids.world(), around.world.epoch, &around.group, 0);
        // A communicator with a process of the other job.
        let mixed = Arc::new(Group::new([OWN, PARTNER, FOREIGN]));
        let mixed = Life::new(ids.id(9).unwrap(), 5, &mixed, 0);
        let lives = vec![Arc::new(world), Arc::new(mixed)];
        let mut room = ServiceRoom {
            service,
            net,
            lives,
            mailboxes,
            sender: None,
            opened: Vec::new(),
            used: None,
        };
        for life in &room.lives {
            room.service.register(&mut room.net, life);
        }
        room.net.lose(LOST, situation != ServiceSituation::Busy);
        match situation {
            ServiceSituation::Idle => {}
            ServiceSituation::Busy => room.begin(&around, &allocator),
            ServiceSituation::Asking => free_ids(&allocator),
        }
        room.service.look(&mut room.net);
        room.net.sent.clear();
        room.mailboxes.take_outgoing();
        room
    }

    fn takes(situation: ServiceSituation, sender: ProcessId, message: &Message) -> Legality {
        let is_busy = situation == ServiceSituation::Busy;
        let legal = |is_legal| if is_legal { Legality::Legal } else { Legality::Illegal };
        match (message.name(), sender) {
            // No doubt of a lost process or of another job is heard.
            ("asked" | "called" | "answered" | "said", LOST | FOREIGN) => Legality::Illegal,
            ("asked", _) => legal(sender == PARTNER),
            ("called", PARTNER) => Legality::Legal,
            ("answer", _) => legal(situation == ServiceSituation::Asking && sender == PARTNER),
            ("answered" | "said", _) => legal(is_busy && sender == PARTNER),
            ("said in a line" | "over", _) => legal(is_busy && sender == PARTNER),
            ("call", _) => legal(is_busy),
            ("closing", FOREIGN) => Legality::Illegal,
            ("closing", _) => legal(is_busy),
            // These name the members, and the process of the other job isn't one.
            ("revoke" | "join" | "agree" | "unequal", FOREIGN) => Legality::Illegal,
            ("called", _) | (_, LOST) => Legality::Open,
            // An agreement that is under way may know already what the message says.
            ("agree" | "join", _) if is_busy => Legality::Open,
            ("left", _) if !is_busy => Legality::Open,
            _ => Legality::Legal,
        }
    }

    fn hear(&mut self, sender: ProcessId, bytes: &[u8]) -> bool {
        self.sender = Some(sender);
        self.net.arrive(sender, bytes);
        self.service.look(&mut self.net);
        // Mailboxes refuse by letters.
        self.mailboxes.take_outgoing();
        !std::mem::take(&mut self.net.sent).is_empty()
    }

    fn state(&self) -> String {
        let Service { registry, agreements, attempts, revocations, comparison, .. } = &self.service;
        let Service { departures, resting, early, unconfirmed, doubts, .. } = &self.service;
        let ServiceRoom { lives, mailboxes, used, .. } = self;
        let of_failures = (registry, agreements, attempts, revocations, departures, doubts);
        let of_messages = (comparison, resting, early, unconfirmed, mailboxes);
        let text = format!("{of_failures:?}{of_messages:?}{lives:?}{used:?}");
        // Each look discards messages of the next few contexts.
        let (before, from_next) = text.split_once(", next: ").unwrap();
        let behind = from_next.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{before}{behind}")
    }

    fn audit(mut self) {
        let Self { service, net, sender, .. } = &mut self;
        assert!(net.given_up.iter().all(|process| Some(*process) == *sender));
        // A process with other settings counts as down in a communicator with it.
        assert!(service.unequal(FOREIGN).is_none() || net.given_up.contains(&FOREIGN));
        let asked = vec![Asked { prefix: 200, creation: 1 }];
        self.take_in(BYSTANDER, &Control::Ask { number: 77, asked });
        let answer = Control::Answer { number: 77, done: vec![1] }.to_bytes(&self.net);
        assert!(self.net.sent.contains(&(BYSTANDER, answer)), "a bystander gets no answer");
    }
}

#[test]
fn no_message_of_another_process_does_harm() {
    let messages = messages::all(&surroundings());
    let senders = [PARTNER, BYSTANDER, LOST, FOREIGN];
    try_all::<ServiceRoom>(&[ServiceSituation::Idle, ServiceSituation::Busy], &senders, &messages);
    let answers: Vec<_> = messages.into_iter().filter(|one| one.name() == "answer").collect();
    try_all::<ServiceRoom>(&[ServiceSituation::Asking], &senders, &answers);
}

#[test]
fn what_messages_leave_behind_is_bounded() {
    let messages = messages::all(&surroundings());
    for (name, field, bound) in [
        ("revoke", "epoch", 1024),
        ("agree", "number", 4096),
        ("agree", "epoch", 4096),
        ("join", "epoch", 4096),
        ("call", "from", 4096),
        ("left", "epoch", 8),
        ("ask", "epoch", 8),
        ("closing", "epoch", 8),
        ("called", "epoch", 8),
    ] {
        let message = messages.iter().find(|message| message.name() == name).unwrap();
        flood::<ServiceRoom>(ServiceSituation::Busy, PARTNER, message, (field, bound));
    }
}
