//! Messages for the NIC as a hostile peer changes them: their headers, and their lengths.

use tagmatch_device::tm::{Opcode, Rvh, Tmh};
use tagmatch_model::{
    Arrival, HEADERS_BYTES, ModelConfig, Nic, Operation, OperationKind, QueuePair, Verdict,
};
use tagmatch_testkit::hostile::{Legality, Meaning, Message, Rest, Room, try_all};

const PEER: QueuePair = QueuePair(1);
const BYSTANDER: QueuePair = QueuePair(2);
/// Ordinary buffers: more than the NIC needs before it accepts messages.
const BUFFERS: u64 = 40;
/// The length of an ordinary buffer, in bytes.
const BUFFER: usize = 256;
/// The tag and the buffer's length of the entry in the list.
const MATCHED: u64 = 70;
const ENTRY: u64 = 1000;
/// A tag that no entry has.
const UNMATCHED: u64 = 1 << 40;

/// Whether the list has an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NicSituation {
    Empty,
    Appended,
    /// The peer's queue pair has failed.
    Failed,
}

struct NicRoom {
    nic: Nic,
}

fn arrival(queue_pair: QueuePair, bytes: &[u8]) -> Arrival {
    let mut head = [0; HEADERS_BYTES];
    let known = bytes.len().min(HEADERS_BYTES);
    head[..known].copy_from_slice(&bytes[..known]);
    Arrival { queue_pair, length: bytes.len() as u64, head, immediate: None }
}

impl NicRoom {
    /// What the NIC reports goes to nobody.
    fn settle(&mut self) {
        while self.nic.poll().is_some() {}
        while self.nic.next_work().is_some() {}
    }
}

impl Room for NicRoom {
    type Situation = NicSituation;
    type Sender = QueuePair;

    fn enter(situation: NicSituation) -> Self {
        let mut nic = Nic::new(&ModelConfig::default().slots(7)).unwrap();
        (0..BUFFERS).for_each(|number| nic.post_receive(number, BUFFER as u64));
        match situation {
            NicSituation::Empty => {}
            NicSituation::Appended => {
                let kind = OperationKind::Add {
                    recv_wr_id: 9,
                    tag: MATCHED,
                    mask: u64::MAX,
                    elements: 1,
                    length: ENTRY,
                };
                let unexpected_count = Some(0);
                nic.post(Operation { wr_id: 8, signalled: true, unexpected_count, kind }).unwrap();
            }
            NicSituation::Failed => nic.fail(PEER, "a test"),
        }
        let mut room = NicRoom { nic };
        room.settle();
        room
    }

    fn takes(situation: NicSituation, sender: QueuePair, _: &Message) -> Legality {
        if situation == NicSituation::Failed && sender == PEER {
            Legality::Illegal
        } else {
            Legality::Legal
        }
    }

    /// A message that breaks a rule fails its queue pair.
    fn hear(&mut self, sender: QueuePair, bytes: &[u8]) -> bool {
        let verdict = self.nic.arrive(&arrival(sender, bytes));
        self.settle();
        !matches!(verdict, Verdict::Dropped | Verdict::NotReady)
    }

    fn state(&self) -> String {
        format!("{:?}", (self.nic.slots_taken(), self.nic.counts()))
    }

    /// Messages of another queue pair still arrive.
    fn audit(mut self) {
        self.nic.post_receive(100, BUFFER as u64);
        let third = QueuePair(3);
        let verdict = self.nic.arrive(&arrival(third, &[Opcode::NoTag as u8; 1]));
        assert!(matches!(verdict, Verdict::Ordinary { .. }), "{verdict:?}");
    }
}

fn tagged(name: &'static str, bytes: Vec<u8>) -> Message {
    let message = Message::new(name, bytes).be(1, "opcode", Meaning::OneOf(vec![0, 1, 2, 3]));
    let message = message.be(3, "reserved", Meaning::Free).be(4, "context", Meaning::Free);
    message.be(8, "tag", Meaning::Free)
}

fn tmh(opcode: Opcode, tag: u64) -> Vec<u8> {
    Tmh { opcode, app_ctx: 5, tag }.emit().to_vec()
}

fn rest(count: std::ops::RangeInclusive<usize>) -> Rest {
    Rest { unit: 1, count, legality: Legality::Legal }
}

fn messages() -> Vec<Message> {
    let eager = |name, tag, most| {
        let bytes = [tmh(Opcode::Eager, tag), b"payload".to_vec()].concat();
        tagged(name, bytes).rest(rest(0..=most))
    };
    let rendezvous = |name, tag, len| {
        let rvh = Rvh { va: 1 << 40, rkey: 3, len };
        let bytes = [tmh(Opcode::Rendezvous, tag), rvh.emit().to_vec()].concat();
        let message = tagged(name, bytes).be(8, "address", Meaning::Free);
        let message = message.be(4, "key", Meaning::Free).be(4, "length", Meaning::Free);
        message.rest(rest(0..=32))
    };
    let plain = |opcode: Opcode| {
        let message = Message::new("without a tag", [opcode as u8, 7, 7]);
        message.be(1, "opcode", Meaning::OneOf(vec![0, 1, 2, 3])).rest(rest(0..=BUFFER - 1))
    };
    vec![
        eager("eager", UNMATCHED, BUFFER - 16),
        // As long as an ordinary buffer, so that it fits wherever it goes.
        eager("matched", MATCHED, BUFFER - 16).or_of_length(BUFFER + 1..=usize::MAX),
        rendezvous("request", UNMATCHED, 50),
        rendezvous("request", MATCHED, 50),
        rendezvous("request", MATCHED, 5000),
        plain(Opcode::NoTag),
        plain(Opcode::Fin),
    ]
}

#[test]
fn no_message_does_harm_beyond_its_queue_pair() {
    let situations = [NicSituation::Empty, NicSituation::Appended, NicSituation::Failed];
    try_all::<NicRoom>(&situations, &[PEER, BYSTANDER], &messages());
}
