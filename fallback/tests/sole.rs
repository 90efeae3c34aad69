//! Receives whose owners promise that their tag has one sender only: a NIC may match them. The
//! tests are about messages of other senders with such a tag.

mod wire;

use std::cell::RefCell;
use std::rc::Rc;

use tagmatch_device::PeerId;
use tagmatch_fallback::{Fault, MatchEngine, PeerFault, RequestId, Send, SendMode, Started};
use tagmatch_model::{Knobs, Model, ModelConfig};
use tagmatch_soft::{Pattern, SourceId, Tag, TagMask};

use wire::{Net, Node, Wire, config, kill, meet, nodes_on, settle};

const MODES: [SendMode; 3] = [SendMode::Standard, SendMode::Synchronous, SendMode::Delivered];
const HONEST: usize = 0;
const LIAR: usize = 1;
const AT: usize = 2;
/// Bytes of a bounce buffer: those of a message but for its header.
const BOUNCE: usize = 4096 - 16;

/// Three engines with NICs, which know each other.
struct World {
    net: Rc<RefCell<Net>>,
    n: Vec<Node<Model<Wire>>>,
    /// The receiver, as the two senders know it.
    to: [PeerId; 2],
    /// The two senders, as the receiver knows them.
    from: [PeerId; 2],
}

impl World {
    fn new(model: &ModelConfig) -> Self {
        let (net, mut n) = nodes_on(3, &config(), |_, wire| Model::new(wire, model).unwrap());
        let to = [HONEST, LIAR].map(|sender| meet(&mut n, sender, AT));
        let from = [HONEST, LIAR].map(|sender| meet(&mut n, AT, sender));
        settle(&mut n);
        World { net, n, to, from }
    }

    /// A receive of messages that only `HONEST` sends.
    fn post(&mut self, tag: u64, room: usize) -> RequestId {
        let source = SourceId(self.from[HONEST].0);
        let pattern = Pattern::new(Tag(tag), TagMask::EXACT).from_source(source);
        self.n[AT].receive_with(&pattern, vec![0xee; room].into(), true, None).unwrap()
    }

    fn send(
        &mut self,
        sender: usize,
        tag: u64,
        length: usize,
        mode: SendMode,
    ) -> Option<RequestId> {
        let bytes = vec![u8::try_from(sender).unwrap(); length];
        match self.n[sender]
            .send(Send::new(self.to[sender], Tag(tag), bytes.into()).immediate(Some(9)), mode)
        {
            Started::Pending(request) => Some(request),
            Started::Sent(_) => None,
            Started::Refused(refused) => panic!("{refused:?}"),
        }
    }

    fn settle(&mut self) {
        settle(&mut self.n);
    }

    /// The sender of the message that a receive got, or why it got none.
    fn end(&mut self, receive: RequestId) -> Result<PeerId, Fault> {
        let done = self.n[AT].requests_mut().take(receive).expect("not over");
        let length = done.result?.length;
        let sender = u8::from(done.result?.source == self.from[LIAR]);
        let fits = done.buffer.len().min(usize::try_from(length).unwrap());
        assert!(done.buffer[..fits].iter().all(|&byte| byte == sender), "another sender's bytes");
        done.result.map(|status| status.source)
    }

    fn wrong_sender(&self) -> Fault {
        Fault::WrongSender { named: self.from[HONEST], sender: self.from[LIAR] }
    }
}

#[test]
fn of_a_hundred_receives_the_nic_matches_as_many_as_its_list_holds() {
    for (slots, is_sole, matched) in [(127, true, 100), (30, true, 30), (127, false, 0)] {
        let mut w = World::new(&ModelConfig::default().slots(slots));
        let source = SourceId(w.from[HONEST].0);
        let receives: Vec<_> = (0..100)
            .map(|tag| {
                let pattern = Pattern::new(Tag(tag), TagMask::EXACT).from_source(source);
                w.n[AT].receive_with(&pattern, vec![0; 64].into(), is_sole, None).unwrap()
            })
            .collect();
        w.settle();
        for tag in (0..100).rev() {
            w.send(HONEST, tag, 64, SendMode::Standard);
            // So that no slot is free again before all messages were sent.
            w.n[HONEST].progress();
        }
        w.settle();
        for receive in receives {
            assert_eq!(w.end(receive), Ok(w.from[HONEST]));
        }
        let counters = w.n[AT].counters();
        assert!(counters.hardware >= matched, "{slots} slots: {counters:?}");
        assert_eq!(counters.hardware == 0, matched == 0, "{slots} slots: {counters:?}");
        assert_eq!(counters.hardware + counters.posted, 100);
        assert_eq!(counters.not_offloaded.source, if is_sole { 0 } else { 100 });
    }
}

#[test]
fn a_receive_that_the_nic_gave_another_senders_message_fails() {
    for mode in MODES {
        for (length, room) in [(0, 8), (8, 8), (500, 64), (1024, 2000), (5000, 5000), (5000, 64)] {
            let mut w = World::new(&ModelConfig::default());
            let first = w.post(7, room);
            let second = w.post(7, room);
            w.settle();
            let lie = w.send(LIAR, 7, length, mode);
            w.settle();
            assert_eq!(w.end(first), Err(w.wrong_sender()), "{mode:?} {length} into {room}");
            assert!(!w.n[AT].requests().is_over(second));
            // A liar that waits gets an abort, unless the NIC has read the message by itself and
            // sent the FIN.
            let is_rendezvous = length > 1024 || mode == SendMode::Synchronous && length > 0;
            let is_read = is_rendezvous && length <= room.max(BOUNCE);
            if let Some(end) =
                lie.map(|lie| w.n[LIAR].requests_mut().take(lie).expect("waits for ever").result)
            {
                let refused = Err(Fault::NotRead { peer: w.to[LIAR], errno: 0 });
                let expected = if is_read { Ok(()) } else { refused };
                assert_eq!(end.map(drop), expected, "{mode:?} {length} into {room}");
            }
            // No peer is broken with, and the next receive gets the honest sender's message.
            assert!(w.n[AT].peer_fault(w.from[LIAR]).is_none());
            w.send(HONEST, 7, length, SendMode::Standard);
            w.settle();
            assert_eq!(w.end(second), Ok(w.from[HONEST]));
            let counters = w.n[AT].counters();
            assert_eq!((counters.hardware, counters.posted, counters.unexpected_now), (1, 0, 0));
            assert_eq!([HONEST, LIAR].map(|sender| w.n[sender].operations()), [0, 0]);
        }
    }
}

#[test]
fn in_software_another_senders_message_waits_for_another_receive() {
    let mut w = World::new(&ModelConfig::default().operations(1));
    let receive = w.post(7, 8);
    w.send(LIAR, 7, 8, SendMode::Standard);
    w.send(HONEST, 7, 8, SendMode::Standard);
    w.settle();
    assert_eq!(w.end(receive), Ok(w.from[HONEST]));
    let any = w.n[AT].receive(&Pattern::new(Tag(0), TagMask::ANY), vec![0; 8].into()).unwrap();
    assert_eq!(w.end(any), Ok(w.from[LIAR]));
}

#[test]
fn another_senders_messages_give_their_credit_back() {
    for (length, count) in [(8, 3000), (1000, 3000), (5000, 300)] {
        let mut w = World::new(&ModelConfig::default());
        for round in 0..count {
            let receive = w.post(7, 5000);
            w.settle();
            let lie = w.send(LIAR, 7, length, SendMode::Standard);
            w.settle();
            assert!(
                w.n[AT].requests().is_over(receive),
                "lie {round} of {length} bytes never came"
            );
            assert_eq!(w.end(receive), Err(w.wrong_sender()));
            lie.map(|lie| w.n[LIAR].requests_mut().take(lie).expect("not over"));
        }
    }
}

#[test]
fn a_receive_in_the_nic_ends_with_the_peer_that_it_names() {
    let mut w = World::new(&ModelConfig::default());
    let receives: Vec<_> = (0..5).map(|tag| w.post(tag, 100)).collect();
    w.settle();
    kill(&w.net, HONEST);
    w.settle();
    let down = Fault::PeerDown { peer: w.from[HONEST], fault: PeerFault::Gone };
    for receive in receives {
        assert_eq!(w.end(receive), Err(down));
    }
    // The NIC has nothing left that could take a message.
    for tag in 0..5 {
        w.send(LIAR, tag, 10, SendMode::Standard);
    }
    w.settle();
    let counters = w.n[AT].counters();
    assert_eq!((counters.unexpected_now, counters.cancelled, counters.list_faults), (5, 0, 0));
    assert_eq!(w.n[AT].requests().len(), 0);
}

#[test]
fn a_receive_in_the_nic_ends_when_its_peer_is_broken_with() {
    let mut w = World::new(&ModelConfig::default());
    let receive = w.post(1, 100);
    w.settle();
    let honest = w.from[HONEST];
    w.n[AT].disconnect(honest);
    w.settle();
    let down = Fault::PeerDown { peer: honest, fault: PeerFault::Disconnected };
    assert_eq!(w.end(receive), Err(down));
}

#[test]
fn a_match_stands_whose_sender_dies_or_whose_receive_is_cancelled_meanwhile() {
    let mut stood = 0;
    let mut ended = 0;
    for seed in 0..200 {
        let model = ModelConfig::default().knobs(Knobs::random(seed)).seed(seed);
        let mut w = World::new(&model);
        let receive = w.post(1, 100);
        w.settle();
        let sender = if seed % 4 < 2 { HONEST } else { LIAR };
        w.send(sender, 1, 50, SendMode::Standard);
        for _ in 0..seed % 3 {
            w.n[AT].progress();
        }
        if seed % 2 == 0 {
            let honest = w.from[HONEST];
            w.n[AT].disconnect(honest);
        } else {
            w.n[AT].cancel(receive);
        }
        w.settle();
        match w.end(receive) {
            Ok(from) => {
                assert!(from == w.from[HONEST] && sender == HONEST);
                stood += 1;
            }
            Err(Fault::WrongSender { .. }) => {
                assert_eq!(sender, LIAR);
                stood += 1;
            }
            Err(Fault::Cancelled) => {
                assert_eq!(seed % 2, 1);
                ended += 1;
            }
            Err(Fault::PeerDown { peer, .. }) => {
                assert!(peer == w.from[HONEST] && seed % 2 == 0);
                ended += 1;
            }
            other => panic!("{other:?}"),
        }
        let counters = w.n[AT].counters();
        assert_eq!((counters.list_faults, w.n[AT].requests().len()), (0, 0));
    }
    assert!(stood > 20 && ended > 20, "{stood} matches stood, {ended} receives ended");
}
