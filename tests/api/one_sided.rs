//! One-sided operations: what a peer puts into, gets from and changes in a region.

use std::time::{Duration, Instant};

use tagmatch::{
    AtomicAction, AtomicOp, AtomicType, Buffer, Config, DeviceConfig, End, Error, Failed, Fault,
    Match, Region, Remote, RemoteFault, Request, Rights, SharedWorker, Token, WaitPolicy, Worker,
};

use crate::common::{Ability, config, counterpart, device, has};
use crate::pair::{Pair, SIZES, bytes, pair, pair_with};

pub(crate) type LocalRegion = Region<tagmatch::Local>;
pub(crate) type LocalRemote = Remote<tagmatch::Local>;

/// The usual settings, but all one-sided operations are messages.
pub(crate) fn config_of_messages() -> Config {
    let config = config();
    let device = match config.device.clone() {
        DeviceConfig::Shm(shm) => DeviceConfig::Shm(shm.direct_regions(false)),
        DeviceConfig::Auto(auto) => {
            let shm = auto.shm.clone().direct_regions(false);
            DeviceConfig::Auto(auto.shm(shm))
        }
        other => other,
    };
    config.device(device)
}

/// Two workers with the usual settings, and two whose one-sided operations are messages always.
pub(crate) fn pairs() -> [Pair; 2] {
    [pair(), pair_with(&config_of_messages())]
}

/// A region of `b`, and `a`'s way to it. `None`: the device has no one-sided operations.
pub(crate) fn exposed(
    p: &Pair,
    memory: impl Into<Buffer>,
    rights: Rights,
) -> Option<(LocalRegion, LocalRemote)> {
    let region = p.b.expose_region(memory, rights);
    if !has(Ability::OneSided) {
        let refused = region.map(drop).unwrap_err();
        assert!(matches!(refused.error, Error::Operation(Fault::NotCarried { .. })), "{refused}");
        return None;
    }
    let region = region.unwrap();
    // The token travels as bytes.
    let token = Token::from_bytes(&region.token().to_bytes()).unwrap();
    assert_eq!((token, token.region_len()), (region.token(), region.len() as u64));
    let remote = p.a.attach(p.to_b, &token).unwrap();
    Some((region, remote))
}

pub(crate) fn contents(region: &LocalRegion) -> Vec<u8> {
    let mut all = vec![0; region.len()];
    region.read(0, &mut all).unwrap();
    all
}

pub(crate) fn refusal<T: tagmatch::Output>(p: &Pair, request: Request<T>) -> RemoteFault {
    fault_of(p.end(request)).unwrap()
}

fn fault_of<T>(result: Result<T, Failed>) -> Option<RemoteFault> {
    match result.map(drop).err()? {
        Failed { error: Error::Operation(Fault::Remote { fault, .. }), .. } => Some(fault),
        other => panic!("{other}"),
    }
}

#[test]
fn puts_and_gets_of_every_size_move_their_bytes_and_no_others() {
    for p in pairs() {
        for size in SIZES {
            let Some((region, remote)) = exposed(&p, vec![0xee; size + 6], Rights::ALL) else {
                return;
            };
            let sent = p.ok(remote.put(3, bytes(size)));
            assert_eq!(sent.buffer.into_vec(), bytes(size), "the buffer comes back");
            let all = contents(&region);
            assert_eq!(all[3..3 + size], bytes(size));
            assert_eq!([&all[..3], &all[3 + size..]].concat(), [0xee; 6], "wrote beside the put");
            let got = p.ok(remote.get(3, vec![0; size]));
            assert_eq!((got.status.length, got.status.truncated), (size, false));
            assert_eq!(got.data(), bytes(size));
            assert_eq!(region.close().len(), size + 6);
        }
    }
}

#[test]
fn over_shared_memory_puts_and_gets_need_nothing_of_the_regions_owner() {
    let [direct, by_messages] = pairs();
    let Some((region, remote)) = exposed(&direct, vec![0; 1 << 20], Rights::ALL) else { return };
    if device() != "shm" {
        return;
    }
    // The owner makes no progress.
    remote.put(1, bytes(1000)).wait().unwrap();
    assert_eq!(contents(&region)[1..1001], bytes(1000));
    assert_eq!(remote.get(1, vec![0; 1000]).wait().unwrap().data(), bytes(1000));
    let memory = direct.b.buffer(1 << 20);
    let mapped = direct.b.expose_region(memory, Rights::READ).unwrap();
    mapped.write(5, &bytes(8000)).unwrap();
    let remote = direct.a.attach(direct.to_b, &mapped.token()).unwrap();
    assert_eq!(remote.get(5, vec![0; 8000]).wait().unwrap().data(), bytes(8000));
    assert_eq!(direct.a.counters().direct_remote, 3);
    let (_region, remote) = exposed(&by_messages, vec![0; 10], Rights::ALL).unwrap();
    by_messages.ok(remote.put(0, bytes(10)));
    assert_eq!(by_messages.a.counters().direct_remote, 0);
}

/// Short ones are messages there. The order holds among both.
#[test]
fn over_tcp_long_puts_and_gets_are_streamed_and_keep_their_order_beside_messages() {
    const LONG: usize = 200_000;
    let p = pair();
    let Some((region, remote)) = exposed(&p, vec![0; LONG], Rights::ALL) else { return };
    if device() != "tcp" {
        return;
    }
    let mut expected = vec![0; LONG];
    let mut puts = Vec::new();
    let mut gets = Vec::new();
    for round in 0..20u8 {
        // Several streams follow each other, then two messages, and no end is waited for.
        for (at, length) in [(0, LONG), (7, 100_000), (round.into(), 100_000), (50, 900), (60, 9)] {
            let stamp = round.wrapping_mul(7).wrapping_add(length.to_le_bytes()[0]).max(1);
            expected[at..at + length].fill(stamp);
            puts.push(remote.put(at as u64, vec![stamp; length]));
        }
        gets.push((expected.clone(), remote.get(0, vec![0; LONG])));
        p.a.fence(p.to_b).unwrap();
    }
    for (expected, get) in gets {
        assert!(p.ok(get).data() == expected, "a get has not seen the puts before it");
    }
    for put in puts {
        p.ok(put);
    }
    assert!(contents(&region) == expected);
    // The gets are messages: some were under way when they began.
    assert_eq!(p.a.counters().direct_remote, 20 * 3);
}

#[test]
fn a_token_of_a_closed_region_reaches_no_later_region_in_the_same_memory() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, bytes(5000), Rights::ALL) else { return };
        p.ok(remote.put(0, bytes(10)));
        let old = region.token();
        let region = p.b.expose_region(region.close(), Rights::ALL).unwrap();
        assert_ne!(region.token(), old);
        let before = contents(&region);
        for at in [0, 4000] {
            assert_eq!(refusal(&p, remote.put(at, vec![7; 1000])), RemoteFault::NoRegion);
            assert_eq!(refusal(&p, remote.get(at, vec![7; 1000])), RemoteFault::NoRegion);
        }
        // The new key with the old place, and the other way round.
        let old = old.to_bytes();
        let new = region.token().to_bytes();
        let mixed = [&new[..24], &old[24..32], &new[32..]].concat();
        let mixed = Token::from_bytes(&mixed.try_into().unwrap()).unwrap();
        let mixed = p.a.attach(p.to_b, &mixed).unwrap();
        assert_eq!(p.ok(mixed.get(0, vec![0; 5000])).data(), before);
        assert_eq!(contents(&region), before);
    }
}

#[test]
fn a_put_behind_a_fence_waits_for_the_end_of_a_get_before_it() {
    let p = pair();
    let length = 4 << 20;
    let Some((region, remote)) = exposed(&p, vec![0; length], Rights::ALL) else { return };
    let get = remote.get(0, vec![7; length]);
    p.a.fence(p.to_b).unwrap();
    // The get reads the last bytes long after this put could be there.
    let put = remote.put(length as u64 - 8, vec![1; 8]);
    let got = p.ok(get);
    assert!(got.data().iter().all(|byte| *byte == 0), "the get has seen the put");
    p.ok(put);
    assert_eq!(contents(&region)[length - 9..], [0, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn slices_are_put_and_got() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, vec![0; 100], Rights::ALL) else { return };
        let from = Buffer::from_slices([bytes(7), bytes(13)]);
        let back = p.ok(remote.put(0, from)).buffer.into_slices().unwrap();
        assert_eq!(back.iter().map(|slice| slice.len()).collect::<Vec<_>>(), [7, 13]);
        assert_eq!(contents(&region)[..20], [bytes(7), bytes(13)].concat());
        let got = p.ok(remote.get(0, Buffer::from_slices([vec![0; 15], vec![0; 5]])));
        let got = got.buffer.into_slices().unwrap();
        assert_eq!([&got[0][..], &got[1][..]].concat(), contents(&region)[..20]);
    }
}

#[test]
fn a_wrong_token_right_or_place_is_an_error_of_the_operation_alone() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, bytes(64), Rights::ALL) else { return };
        for (at, length) in [(64, 1), (1, 64), (65, 0), (u64::MAX, 1), (u64::MAX, 0), (0, 100_000)]
        {
            assert_eq!(refusal(&p, remote.put(at, bytes(length))), RemoteFault::OutOfBounds);
            assert_eq!(refusal(&p, remote.get(at, vec![0; length])), RemoteFault::OutOfBounds);
            let elements = remote.atomic(at, AtomicOp::Sum, AtomicType::U8, bytes(length));
            let is_empty = length == 0;
            match p.end(elements).map(drop).unwrap_err().error {
                Error::Operation(Fault::Remote { fault: RemoteFault::OutOfBounds, .. }) => {}
                other => panic!("{at} {length} {is_empty}: {other}"),
            }
        }
        let mut other = region.token().to_bytes();
        other[15] ^= 1;
        let wrong = p.a.attach(p.to_b, &Token::from_bytes(&other).unwrap()).unwrap();
        assert_eq!(refusal(&p, wrong.put(0, bytes(8))), RemoteFault::NoRegion);
        assert_eq!(refusal(&p, wrong.get(0, bytes(0))), RemoteFault::NoRegion);
        for (at, byte) in [(0, 2), (1, 8), (5, 1), (63, 1)] {
            let mut other = region.token().to_bytes();
            other[at] = byte;
            assert!(matches!(Token::from_bytes(&other), Err(Error::BadToken)), "byte {at}");
        }
        let operand = || bytes(8);
        for rights in [Rights::READ, Rights::WRITE, Rights::ATOMIC, Rights::READ | Rights::ATOMIC] {
            let (region, remote) = exposed(&p, bytes(64), rights).unwrap();
            let put = p.end(remote.put(0, bytes(8))).is_ok();
            let get = p.end(remote.get(0, vec![0; 8])).is_ok();
            let sum = p.end(remote.atomic(0, AtomicOp::Sum, AtomicType::U64, operand())).is_ok();
            let fetch = p.end(remote.fetch(0, AtomicOp::Sum, AtomicType::U64, operand())).is_ok();
            let has = |right| rights.contains(right);
            let atomic = has(Rights::ATOMIC);
            let expected = [has(Rights::WRITE), has(Rights::READ), atomic, atomic];
            assert_eq!([put, get, sum, fetch], expected, "{rights:?}");
            drop(region);
        }
        assert_eq!(contents(&region), bytes(64), "nothing was changed");
        assert_eq!(p.b.peer_fault(p.to_a).unwrap(), None);
        p.a.inject(p.to_b, 5, b"goes on").unwrap();
        assert_eq!(p.ok(p.b.recv(Match::tag(5), vec![0; 7])).data(), b"goes on");
    }
}

#[test]
fn a_put_that_is_too_long_writes_nothing() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, vec![7; 200_000], Rights::ALL) else { return };
        assert_eq!(refusal(&p, remote.put(50_000, bytes(150_001))), RemoteFault::OutOfBounds);
        assert!(contents(&region).iter().all(|byte| *byte == 7));
        p.ok(remote.put(50_000, bytes(150_000)));
        assert_eq!(contents(&region)[50_000..], bytes(150_000));
    }
}

#[test]
fn a_region_that_closes_ends_what_is_under_way_and_nobody_reaches_its_memory() {
    for p in pairs() {
        let length = 16 << 20;
        let Some((region, remote)) = exposed(&p, bytes(length), Rights::ALL) else { return };
        let gets: Vec<_> = (0..3).map(|_| remote.get(0, vec![0; length])).collect();
        let puts: Vec<_> = (0..3).map(|_| remote.put(0, vec![1; length])).collect();
        for _ in 0..3 {
            p.b.progress();
            p.a.progress();
        }
        let memory = region.close();
        let before = memory.to_vec();
        // The last ones were under way. Earlier ones may have been done.
        let gets: Vec<_> = gets.into_iter().map(|get| fault_of(p.end(get))).collect();
        let puts: Vec<_> = puts.into_iter().map(|put| fault_of(p.end(put))).collect();
        assert!(gets[2].is_some() && puts[2].is_some(), "{gets:?} {puts:?}");
        let is_of_close =
            |fault: &RemoteFault| matches!(fault, RemoteFault::Closed | RemoteFault::NoRegion);
        assert!(gets.iter().chain(&puts).flatten().all(is_of_close), "{gets:?} {puts:?}");
        assert_eq!(memory[..], before, "memory of a closed region was changed");
    }
}

#[test]
fn memory_that_can_only_be_read_is_exposed_for_gets_alone() {
    let p = pair();
    let Some((_, _)) = exposed(&p, vec![], Rights::READ) else { return };
    let shared: std::sync::Arc<[u8]> = bytes(9).into();
    for rights in [Rights::WRITE, Rights::ATOMIC] {
        let refused = p.b.expose_region(shared.clone(), rights).map(drop).unwrap_err();
        assert!(matches!(refused.error, Error::Operation(Fault::ReadOnlyBuffer)), "{refused}");
        assert_eq!(refused.buffer[..], bytes(9));
    }
    let slices = Buffer::from_slices([vec![0; 4], vec![0; 4]]);
    let refused = p.b.expose_region(slices, Rights::ALL).map(drop).unwrap_err();
    assert!(matches!(refused.error, Error::Operation(Fault::NotCarried { .. })), "{refused}");
    assert_eq!(refused.buffer.total_len(), 8, "the memory comes back");
    let region = p.b.expose_region(shared, Rights::READ).unwrap();
    assert!(matches!(region.write(0, &[1]), Err(Error::OutOfRegion { .. })));
    assert!(matches!(region.read(9, &mut [0]), Err(Error::OutOfRegion { .. })));
    let remote = p.a.attach(p.to_b, &region.token()).unwrap();
    assert_eq!(p.ok(remote.get(0, vec![0; 9])).data(), bytes(9));
    let refused = p.end(remote.get(0, std::sync::Arc::<[u8]>::from(bytes(9)))).map(drop);
    assert!(matches!(refused.unwrap_err().error, Error::Operation(Fault::ReadOnlyBuffer)));
}

#[test]
fn notices_come_in_order_behind_their_bytes_and_wait_for_their_owner() {
    const NOTICES: u64 = 1500;
    let p = pair();
    let Some((region, remote)) = exposed(&p, vec![0; 8 * 1500], Rights::WRITE) else { return };
    let puts = (0..NOTICES).map(|at| remote.put_with(8 * at, at.to_ne_bytes().to_vec(), !at));
    let mut puts: Vec<_> = puts.collect();
    for _ in 0..1000 {
        p.progress();
    }
    // Nobody takes them, so not all puts end, though all bytes are there.
    assert!(puts.last_mut().unwrap().test().is_none());
    for at in 0..NOTICES {
        let notice = loop {
            p.a.progress();
            if let Some(notice) = p.b.take_notice() {
                break notice;
            }
        };
        assert_eq!((notice.peer, notice.value, notice.length), (p.to_a, !at, 8));
        let mut put = [0; 8];
        region.read(8 * at as usize, &mut put).unwrap();
        assert_eq!(u64::from_ne_bytes(put), at);
    }
    for put in puts {
        p.ok(put);
    }
    assert_eq!(p.b.take_notice(), None);
    assert_eq!(p.b.notice_timeout(Duration::from_millis(1)), None);
}

#[test]
fn a_message_behind_a_long_put_does_not_wait_for_its_end() {
    for p in pairs() {
        let Some((_region, remote)) = exposed(&p, vec![0; 32 << 20], Rights::WRITE) else { return };
        let mut put = remote.put(0, vec![1; 32 << 20]);
        let message = p.a.send(p.to_b, 7, bytes(100));
        let received = p.ok(p.b.recv(Match::tag(7), vec![0; 100]));
        assert_eq!(received.data(), bytes(100));
        assert!(put.test().is_none(), "the put was over first");
        p.ok(message);
        p.ok(put);
    }
}

#[test]
fn a_message_behind_the_answer_to_a_long_get_does_not_wait_for_its_end() {
    let [_, p] = pairs();
    let Some((_region, remote)) = exposed(&p, vec![0; 32 << 20], Rights::READ) else { return };
    let mut get = remote.get(0, vec![1; 32 << 20]);
    p.progress();
    let message = p.b.send(p.to_a, 7, bytes(100));
    let received = p.ok(p.a.recv(Match::tag(7), vec![0; 100]));
    assert_eq!(received.data(), bytes(100));
    assert!(get.test().is_none(), "the get was over first");
    p.ok(message);
    p.ok(get);
}

#[test]
fn a_message_after_the_end_of_a_put_finds_the_bytes_there() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, vec![0; 100_000], Rights::WRITE) else { return };
        for (round, size) in (1..).zip([8, 4096, 70_000, 1, 100_000]) {
            p.ok(remote.put(0, vec![round; size]));
            p.a.inject(p.to_b, 3, &[round]).unwrap();
            p.ok(p.b.recv(Match::tag(3), vec![0; 1]));
            assert_eq!(contents(&region)[..size], vec![round; size]);
        }
    }
}

#[test]
fn operations_by_messages_are_counted() {
    let [_, p] = pairs();
    let Some((_region, remote)) = exposed(&p, vec![0; 64], Rights::ALL) else { return };
    p.ok(remote.put(0, bytes(8)));
    p.ok(remote.get(0, vec![0; 8]));
    refusal(&p, remote.put(60, bytes(8)));
    let counters = p.a.counters();
    assert_eq!((counters.remote_by_messages, counters.direct_remote), (3, 0));
}

#[test]
fn elements_that_equal_what_they_are_compared_with_are_replaced() {
    for p in pairs() {
        let elements = |values: [u16; 3]| values.map(u16::to_ne_bytes).concat();
        let Some((region, remote)) = exposed(&p, elements([1, 2, 3]), Rights::ATOMIC) else {
            return;
        };
        let of = AtomicType::U16;
        let swap = remote.compare_swap(0, of, &elements([1, 9, 3]), &elements([7, 8, 9]));
        assert_eq!(p.ok(swap).data(), elements([1, 2, 3]));
        assert_eq!(contents(&region), elements([7, 2, 9]));
        let failed = p.end(remote.compare_swap(0, of, &[0; 2], &[0; 4])).map(drop).unwrap_err();
        assert!(matches!(failed.error, Error::Operation(Fault::BadOperands)), "{failed}");
    }
}

#[test]
fn long_operations_wake_threads_that_sleep() {
    let config = config().wait(WaitPolicy::SLEEP);
    let owner = SharedWorker::new(counterpart(&config)).unwrap();
    let Ok(region) = owner.expose_region(vec![0; 4 << 20], Rights::ALL) else { return };
    let progress = owner.progress_thread().unwrap();
    let worker = Worker::new(config).unwrap();
    let peer = worker.connect(&owner.address()).unwrap();
    let remote = worker.attach(peer, &region.token()).unwrap();
    for round in 0..5 {
        let put = remote.put(0, vec![round; 4 << 20]);
        let message = worker.send(peer, 1, vec![0; 100]);
        put.wait().unwrap();
        message.wait().unwrap();
        let got = remote.get(0, vec![9; 4 << 20]).wait().unwrap();
        assert!(got.data().iter().all(|byte| *byte == round));
        drop(remote.put_with(0, vec![], round.into()));
        assert_eq!(owner.notice_timeout(Duration::from_secs(20)).unwrap().value, round.into());
        assert!(worker.flush_remote(peer, Duration::from_secs(20)).unwrap());
    }
    drop(progress);
}

#[test]
fn ends_of_queued_operations_come_in_the_completion_queue() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, vec![0; 64], Rights::ALL) else { return };
        remote.put_queued(0, bytes(8), None, 1).unwrap();
        remote.put_queued(8, bytes(9), Some(77), 2).unwrap();
        let operands = Buffer::from(1u64.to_ne_bytes().to_vec());
        let old = Some(vec![0; 8].into());
        let sum = AtomicAction { op: AtomicOp::Sum, of: AtomicType::U64, operands, old };
        remote.atomic_queued(24, sum, 3).unwrap();
        remote.get_queued(0, vec![0; 64], 4).unwrap();
        remote.put_queued(60, bytes(5), None, 5).unwrap();
        let mut ends = Vec::new();
        let start = Instant::now();
        while ends.len() < 5 {
            p.b.progress();
            p.a.ends(&mut ends, 64);
            assert!(start.elapsed() < Duration::from_secs(20), "hangs");
        }
        let mut contexts = Vec::new();
        for end in ends {
            let End::Operation { context, result, buffer } = end else { panic!("{end:?}") };
            assert_eq!(result.is_ok(), context != 5, "{result:?}");
            if context == 4 {
                assert_eq!(buffer[..], contents(&region));
            }
            contexts.push(context);
        }
        assert_eq!(contexts, [1, 2, 3, 4, 5]);
        assert_eq!(p.b.take_notice().map(|notice| notice.value), Some(77));
    }
}

#[test]
fn operations_on_a_peer_that_leaves_fail_and_give_their_buffers_back() {
    for p in pairs() {
        let Some((region, remote)) = exposed(&p, vec![0; 16 << 20], Rights::ALL) else { return };
        let put = remote.put(0, bytes(16 << 20));
        let get = remote.get(0, vec![0; 1 << 20]);
        let Pair { a, b, to_b, .. } = p;
        drop(region);
        drop(b);
        let put = put.wait().map(drop).unwrap_err();
        let get = get.wait().map(drop).unwrap_err();
        for (failed, length) in [(put, 16 << 20), (get, 1 << 20)] {
            let is_down = matches!(failed.error, Error::PeerDown { peer, .. } if peer == to_b);
            let is_closed = matches!(failed.error, Error::Operation(Fault::Remote { .. }));
            assert!(is_down || is_closed, "{failed}");
            assert_eq!(failed.buffer.len(), length);
        }
        let refused = remote.put(0, bytes(8)).wait().map(drop).unwrap_err();
        assert!(matches!(refused.error, Error::PeerDown { .. }), "{refused}");
        assert!(a.flush_remote(to_b, Duration::from_secs(5)).unwrap());
    }
}

#[test]
fn oneself_is_an_owner_like_any() {
    let worker = Worker::new(config()).unwrap();
    let Ok(region) = worker.expose_region(vec![0; 8], Rights::ALL) else { return };
    let remote = worker.attach(worker.oneself(), &region.token()).unwrap();
    for _ in 0..3 {
        let one = 1u64.to_ne_bytes().to_vec();
        remote.atomic(0, AtomicOp::Sum, AtomicType::U64, one).wait().unwrap();
    }
    let old = remote.fetch_elements(0, AtomicType::U64, 1).wait().unwrap();
    assert_eq!(old.data(), 3u64.to_ne_bytes());
}
