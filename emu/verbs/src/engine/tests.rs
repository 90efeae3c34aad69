//! Tests of the engine on a wire that records its calls.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tagmatch_device::tm::{Opcode, Rvh, Tmh};
use tagmatch_model::{Knobs, ModelConfig};
use tagmatch_rdma_core_sys::{
    IBV_QPS_ERR, IBV_QPS_RTS, IBV_WC_LOC_PROT_ERR, IBV_WC_SUCCESS, IBV_WC_TM_RECV,
    IBV_WC_WR_FLUSH_ERR,
};

use super::*;

const PAIR: u32 = 17;
const MATCH: u32 = 32;
const DATA: u32 = 64;

/// Bounce buffers of 256 bytes, and what was asked for.
#[derive(Default)]
struct Paper {
    events: VecDeque<WireEvent>,
    posted: VecDeque<u32>,
    messages: BTreeMap<u32, Vec<u8>>,
    /// Keys that are not registered.
    denied: Vec<u32>,
    scattered: std::cell::RefCell<Vec<(u32, Vec<u8>)>>,
    begun: Vec<(u64, NicRequest)>,
    broken: Vec<u32>,
    takes_no_requests: bool,
}

impl Wire for Paper {
    fn poll(&mut self) -> Option<WireEvent> {
        self.events.pop_front()
    }

    fn post(&mut self, buffer: u32) -> bool {
        self.posted.push_back(buffer);
        true
    }

    fn bounce(&self, buffer: u32) -> &[u8] {
        &self.messages[&buffer]
    }

    fn scatter(&self, buffer: u32, range: Range<usize>, to: &[Segment]) -> Result<(), Denied> {
        let lkey = to.first().map_or(0, |segment| segment.lkey);
        if self.denied.contains(&lkey) {
            return Err(Denied);
        }
        let bytes = self.bounce(buffer)[range].to_vec();
        self.scattered.borrow_mut().push((lkey, bytes));
        Ok(())
    }

    fn begin(&mut self, _pair: u32, token: u64, request: &NicRequest) -> bool {
        self.begun.push((token, *request));
        !self.takes_no_requests
    }

    fn break_pair(&mut self, pair: u32) {
        self.broken.push(pair);
    }
}

fn engine(knobs: Knobs) -> Engine<Paper> {
    let config = ModelConfig::default().slots(8).knobs(knobs);
    let sizes =
        QueueSizes { slots: 8, receives: 64, elements: 2, bounces: 4, requests: 20, read_max: 100 };
    let mut engine = Engine::new(Nic::new(&config).unwrap(), Paper::default(), sizes);
    engine.add_pair(PAIR, true);
    let ready = PairChange { state: Some(IBV_QPS_RTS), mtu: Some(1024), reads_max: Some(1) };
    engine.change_pair(PAIR, ready);
    engine
}

/// One with so many ordinary buffers of key 1, and no floor.
fn open(ordinary: u64) -> Engine<Paper> {
    let mut engine = engine(Knobs::default().buffers_min(1));
    post(&mut engine, ordinary, 1);
    engine
}

fn post(engine: &mut Engine<Paper>, count: u64, lkey: u32) {
    for wr_id in 0..count {
        let segment = Segment { address: 0, length: 256, lkey };
        engine.post_receive(wr_id, [segment].into_iter()).unwrap();
    }
    engine.refill();
}

fn add(engine: &mut Engine<Paper>, tag: u64, length: u32, lkey: u32) -> Handle {
    let segment = Segment { address: 0x1000, length, lkey };
    let kind = OperationKind::Add {
        recv_wr_id: tag,
        tag,
        mask: u64::MAX,
        elements: 1,
        length: length.into(),
    };
    let operation = Operation { wr_id: 0, signalled: false, unexpected_count: None, kind };
    Handle(engine.post_operation(operation, segment).unwrap().unwrap())
}

/// A message comes in, if the device has a buffer for it.
fn arrive(engine: &mut Engine<Paper>, message: &[u8]) -> bool {
    let Some(buffer) = engine.wire.posted.pop_front() else { return false };
    let mut bounce = message.to_vec();
    bounce.resize(256, 0xee);
    engine.wire.messages.insert(buffer, bounce);
    let length = u32::try_from(message.len()).unwrap();
    let event = WireEvent::Arrived { pair: PAIR, buffer, length, immediate: None };
    engine.wire.events.push_back(event);
    engine.progress();
    true
}

fn eager(tag: u64, payload: &[u8]) -> Vec<u8> {
    [&Tmh { opcode: Opcode::Eager, app_ctx: 5, tag }.emit()[..], payload].concat()
}

fn rendezvous(tag: u64, len: u32) -> Vec<u8> {
    let tmh = Tmh { opcode: Opcode::Rendezvous, app_ctx: 5, tag };
    [tmh.emit(), Rvh { va: 0x8000, rkey: 9, len }.emit()].concat()
}

/// Status, flags and `wr_id` of all completions that are there.
fn completions(engine: &mut Engine<Paper>) -> Vec<(u32, u32, u64)> {
    std::iter::from_fn(|| engine.next_completion())
        .map(|Record { wc, .. }| (wc.status, wc.wc_flags, wc.wr_id))
        .collect()
}

/// The device ends what it was given last.
fn done(engine: &mut Engine<Paper>, is_ok: bool) {
    let (token, _) = engine.wire.begun.remove(0);
    engine.wire.events.push_back(WireEvent::Done { token, is_ok });
    engine.progress();
}

#[test]
fn the_device_has_buffers_for_as_many_messages_as_the_nic() {
    let mut engine = engine(Knobs::default());
    post(&mut engine, 32, 1);
    assert_eq!(engine.wire.posted.len(), 0, "below the floor");
    post(&mut engine, 1, 1);
    assert_eq!(engine.wire.posted.len(), 4, "no more than there are");
    add(&mut engine, 2, 64, 2);
    for left in (0..33).rev() {
        assert!(arrive(&mut engine, &eager(1, b"unexpected")));
        assert_eq!(engine.wire.posted.len(), left.min(4));
    }
    assert!(!arrive(&mut engine, &eager(1, b"refused by the device")));
    post(&mut engine, 1, 1);
    for _ in 0..2 {
        // A match takes no ordinary buffer.
        assert!(arrive(&mut engine, &eager(2, b"matched, then not")));
    }
    assert!(!arrive(&mut engine, &eager(1, b"refused")));
    assert_eq!(completions(&mut engine).len(), 33 + 2);
    engine.close();
    post(&mut engine, 1, 1);
    assert_eq!(engine.wire.posted.len(), 0, "closed");
}

#[test]
fn messages_go_where_the_nic_says() {
    let mut engine = open(4);
    add(&mut engine, 1, 64, 2);
    arrive(&mut engine, &eager(1, b"matched"));
    arrive(&mut engine, &eager(1, b"unexpected"));
    let landed = engine.wire.scattered.take();
    assert_eq!(landed, [(2, b"matched".to_vec()), (1, eager(1, b"unexpected"))]);
    let record = engine.next_completion().unwrap();
    assert_eq!((record.wc.opcode, record.wc.wc_flags), (IBV_WC_TM_RECV, MATCH | DATA));
    assert_eq!((record.wc.wr_id, record.wc.byte_len, record.wc.qp_num), (1, 7, PAIR));
    assert_eq!((record.tm_info.tag, record.tm_info.priv_), (1, 5));
    let record = engine.next_completion().unwrap();
    assert_eq!((record.wc.opcode, record.wc.wc_flags), (IBV_WC_TM_RECV, 0));
    assert_eq!((record.wc.byte_len, record.tm_info.tag), (26, 0));
    assert!(engine.next_completion().is_none());
}

#[test]
fn the_path_decides_what_one_packet_is() {
    let mut engine = open(4);
    engine.change_pair(PAIR, PairChange { mtu: Some(20), ..PairChange::default() });
    add(&mut engine, 1, 64, 2);
    add(&mut engine, 1, 64, 2);
    arrive(&mut engine, &eager(1, b"four"));
    arrive(&mut engine, &eager(1, b"five!"));
    let expected = [(0, MATCH | DATA, 1), (0, MATCH, 1), (0, DATA, 1)];
    assert_eq!(completions(&mut engine), expected);
}

#[test]
fn memory_that_may_not_be_written_is_an_error_and_breaks_the_pair() {
    for is_matched in [false, true] {
        let mut engine = open(4);
        engine.wire.denied.push(if is_matched { 2 } else { 1 });
        add(&mut engine, 1, 64, 2);
        let tag = if is_matched { 1 } else { 7 };
        arrive(&mut engine, &eager(tag, b"nowhere"));
        let [(status, _, wr_id)] = completions(&mut engine)[..] else { panic!() };
        assert_eq!(status, IBV_WC_LOC_PROT_ERR);
        assert_eq!(wr_id, if is_matched { 1 } else { 0 });
        assert_eq!(engine.wire.broken, [PAIR]);
        arrive(&mut engine, &eager(tag, b"dropped"));
        assert!(completions(&mut engine).is_empty());
        assert_eq!(engine.wire.posted.len(), if is_matched { 4 } else { 3 });
    }
}

#[test]
fn a_rendezvous_is_read_in_parts_then_finished() {
    let mut engine = open(4);
    let handle = add(&mut engine, 1, 300, 2);
    arrive(&mut engine, &rendezvous(1, 250));
    let parts: Vec<_> = engine
        .wire
        .begun
        .iter()
        .map(|(_, request)| match *request {
            NicRequest::Read { address, rkey: 9, into, .. } => (address, into.address, into.length),
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(parts, [(0x8000, 0x1000, 100), (0x8064, 0x1064, 100), (0x80c8, 0x10c8, 50)]);
    assert_eq!(completions(&mut engine), [(0, MATCH, 1)]);
    for _ in 0..3 {
        done(&mut engine, true);
    }
    let [(_, NicRequest::Fin { handle: of, headers, length: 32 })] = engine.wire.begun[..] else {
        panic!("{:?}", engine.wire.begun)
    };
    assert_eq!((of, &headers[1..]), (handle, &rendezvous(1, 250)[1..]));
    assert!(completions(&mut engine).is_empty());
    done(&mut engine, true);
    assert_eq!(completions(&mut engine), [(0, DATA, 1)]);
    assert_eq!(engine.faults(), []);
}

#[test]
fn a_read_that_fails_breaks_the_pair_and_flushes_the_match() {
    // Of three READs one fails, or the device takes none.
    for failed in [Some(0), Some(1), Some(2), None] {
        let mut engine = open(4);
        engine.wire.takes_no_requests = failed.is_none();
        add(&mut engine, 1, 300, 2);
        arrive(&mut engine, &rendezvous(1, 250));
        if let Some(failed) = failed {
            (0..3).for_each(|at| done(&mut engine, at != failed));
        }
        engine.progress();
        assert_eq!(engine.wire.broken, [PAIR]);
        let expected = [(IBV_WC_SUCCESS, MATCH, 1), (IBV_WC_WR_FLUSH_ERR, 0, 1)];
        assert_eq!(completions(&mut engine), expected);
    }
}

#[test]
fn requests_wait_for_their_turn() {
    let mut engine = open(32);
    engine.add_pair(18, true);
    for tag in 0..8 {
        add(&mut engine, tag, 300, 2);
        arrive(&mut engine, &rendezvous(tag, 300));
    }
    assert_eq!(engine.wire.begun.len(), 16, "of one pair");
    // The other one isn't ready to send.
    engine.queue(18, NicRequest::Fin { handle: Handle(0), headers: [2; 32], length: 16 });
    assert_eq!(engine.wire.begun.len(), 16);
    engine.change_pair(18, PairChange { state: Some(IBV_QPS_RTS), ..PairChange::default() });
    assert_eq!(engine.wire.begun.len(), 17);
    for _ in 0..17 + 8 + 8 {
        done(&mut engine, true);
    }
    assert_eq!(engine.wire.begun.len(), 0);
    let all = completions(&mut engine);
    assert_eq!(all.iter().filter(|(_, flags, _)| *flags == DATA).count(), 8);
}

/// All pairs share the places for requests under way.
#[test]
fn a_pair_gets_the_place_that_a_request_of_another_one_frees() {
    let mut engine = open(4);
    let fin = NicRequest::Fin { handle: Handle(0), headers: [2; 32], length: 16 };
    for (pair, requests) in [(PAIR, 16), (18, 4), (19, 1)] {
        if pair != PAIR {
            engine.add_pair(pair, true);
            let ready = PairChange { state: Some(IBV_QPS_RTS), ..PairChange::default() };
            engine.change_pair(pair, ready);
        }
        for _ in 0..requests {
            engine.queue(pair, fin);
        }
    }
    assert_eq!(engine.wire.begun.len(), 20, "no place is left for the last pair");
    done(&mut engine, true);
    assert_eq!(engine.wire.begun.len(), 20, "the last pair has the place that is free");
}

#[test]
fn what_a_destroyed_pair_had_under_way_is_flushed_and_answers_to_it_are_stale() {
    let mut engine = open(4);
    add(&mut engine, 1, 300, 2);
    arrive(&mut engine, &rendezvous(1, 300));
    let tokens: Vec<u64> = engine.wire.begun.drain(..).map(|(token, _)| token).collect();
    engine.remove_pair(PAIR);
    assert!(!engine.has_pairs());
    assert_eq!(completions(&mut engine), [(0, MATCH, 1), (IBV_WC_WR_FLUSH_ERR, 0, 1)]);

    // The same number again, and the same places.
    engine.add_pair(PAIR, true);
    let ready = PairChange { state: Some(IBV_QPS_RTS), ..PairChange::default() };
    engine.change_pair(PAIR, ready);
    add(&mut engine, 1, 300, 2);
    arrive(&mut engine, &rendezvous(1, 300));
    for token in tokens {
        engine.wire.events.push_back(WireEvent::Done { token, is_ok: true });
    }
    engine.progress();
    assert_eq!(engine.wire.begun.len(), 3, "no FIN yet");
    assert_eq!(completions(&mut engine), [(0, MATCH, 1)]);
    assert_eq!(engine.faults(), []);
}

#[test]
fn a_pair_in_error_gets_its_requests_flushed_by_the_device() {
    let mut engine = open(4);
    add(&mut engine, 1, 100, 2);
    arrive(&mut engine, &rendezvous(1, 100));
    engine.change_pair(PAIR, PairChange { state: Some(IBV_QPS_ERR), ..PairChange::default() });
    assert_eq!(completions(&mut engine), [(0, MATCH, 1)]);
    done(&mut engine, false);
    assert_eq!(completions(&mut engine), [(IBV_WC_WR_FLUSH_ERR, 0, 1)]);
    assert!(engine.wire.broken.is_empty(), "it was the program who did it");
}

#[test]
fn buffers_of_messages_that_failed_or_that_nobody_owns_come_back() {
    let mut engine = open(4);
    let first = engine.wire.posted.pop_front().unwrap();
    engine.wire.events.push_back(WireEvent::Failed { pair: PAIR, buffer: first });
    engine.progress();
    assert_eq!((engine.wire.posted.len(), &engine.wire.broken[..]), (4, &[PAIR][..]));
    engine.remove_pair(PAIR);
    arrive(&mut engine, &eager(1, b"of a pair that is gone"));
    assert_eq!(engine.wire.posted.len(), 4);
    assert!(completions(&mut engine).is_empty());
}
