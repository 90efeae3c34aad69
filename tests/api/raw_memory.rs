//! Memory of the caller's own: not initialised, and registered.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use tagmatch::raw::{self, RegionName, Registered};
use tagmatch::{
    AtomicAction, AtomicOp, AtomicType, Buffer, DeviceError, End, Error, Fault, Match, Rights,
    Worker,
};

use crate::common::{Ability, config, device, has};
use crate::pair::{Pair, bytes, pair};

/// Memory that was never written. It is freed after everything that a test makes of it.
struct Memory(Box<[MaybeUninit<u8>]>);

impl Memory {
    fn new(length: usize) -> Self {
        Memory(Box::new_uninit_slice(length))
    }

    fn start(&mut self) -> NonNull<u8> {
        NonNull::from(&mut *self.0).cast()
    }

    /// All of it, for receiving.
    fn buffer(&mut self) -> Buffer {
        // SAFETY: these tests use the memory again only when the receive is over.
        unsafe { raw::buffer(self.start(), self.0.len()) }
    }

    fn registered(&mut self, worker: &Worker) -> Registered {
        // SAFETY: the memory is freed after all that is made of it.
        unsafe { raw::register(worker, self.start(), self.0.len()) }.unwrap()
    }
}

/// A part for receiving into.
fn inbox(registered: &Registered, range: Range<usize>) -> Buffer {
    // SAFETY: in these tests no two parts that are in use overlap.
    unsafe { registered.buffer(range) }.unwrap()
}

/// A part for sending, with these bytes.
fn outbox(registered: &Registered, at: usize, message: &[u8]) -> Buffer {
    let range = at..at + message.len();
    assert_eq!(inbox(registered, range.clone()).room().unwrap().fill(message), message.len());
    // SAFETY: as in `inbox`, and the bytes were just written.
    unsafe { registered.read_only(range) }.unwrap()
}

#[test]
fn raw_memory_that_was_never_written_is_received_into() {
    let p = pair();
    for size in [0, 1, 41, 8192, 8193, 100_000, 1 << 20] {
        for (is_expected, more) in [(true, 0), (true, 100), (false, 100)] {
            let mut memory = Memory::new(size + more);
            let start = memory.start();
            let buffer = memory.buffer();
            let receive = |buffer| p.b.recv(Match::tag(1), buffer);
            let (send, received) = if is_expected {
                let receive = receive(buffer);
                let send = p.a.send(p.to_b, 1, bytes(size));
                (send, p.ok(receive))
            } else {
                let send = p.a.send(p.to_b, 1, bytes(size));
                p.probe(Match::tag(1));
                (send, p.ok(receive(buffer)))
            };
            assert!(received.data() == bytes(size), "{size} {is_expected} {more}");
            assert_eq!(received.buffer.as_ptr(), start.as_ptr().cast_const());
            p.ok(send);
        }
    }
}

#[test]
fn raw_memory_has_initialised_bytes_wherever_data_shows_them() {
    let p = pair();
    for (size, room) in [(40, 8), (20_000, 100), (300_000, 70_000), (300_000, 0)] {
        for is_expected in [true, false] {
            let mut memory = Memory::new(room);
            let receive = |buffer| p.b.recv(Match::tag(1), buffer);
            let posted = is_expected.then(|| receive(memory.buffer()));
            let send = p.a.send(p.to_b, 1, bytes(size));
            let posted = posted.unwrap_or_else(|| {
                p.probe(Match::tag(1));
                receive(memory.buffer())
            });
            let received = p.ok(posted);
            assert_eq!((received.status.length, received.status.truncated), (size, true));
            // Memcheck would tell of a byte that was never written.
            let shown = received.data().to_vec();
            let first =
                if has(Ability::FirstBytes) { &bytes(size)[..room] } else { &vec![0; room] };
            assert!(shown == first, "{size} {room} {is_expected}");
            p.ok(send);
        }
    }
    // One's own messages go another way.
    let me = p.a.oneself();
    for size in [0, 10, 300_000] {
        let mut memory = Memory::new(size + 5);
        let receive = p.a.recv(Match::tag(2), memory.buffer());
        let send = p.a.send(me, 2, bytes(size));
        assert!(p.ok(receive).data() == bytes(size));
        p.ok(send);
    }
}

#[test]
fn raw_memory_of_a_cancelled_receive_is_as_it_was() {
    let p = pair();
    let mut memory = Memory::new(1000);
    memory.0[999].write(7);
    let mut receive = p.b.recv(Match::tag(1), memory.buffer());
    receive.cancel();
    assert!(matches!(p.end(receive).unwrap_err().error, Error::Cancelled));
    // SAFETY: this byte was written above.
    assert_eq!(unsafe { memory.0[999].assume_init() }, 7);
}

/// Sizes of eager messages and of rendezvous.
const PARTS: [usize; 6] = [100, 200_000, 8192, 70_001, 1, 1_000_000];

/// Parts of one memory are sent both ways at once: each side sends from one half, and receives into
/// the other one.
#[test]
fn parts_of_registered_memory_are_under_way_both_ways_at_once() {
    let p = pair();
    let half: usize = PARTS.iter().sum();
    let mut of_a = Memory::new(2 * half);
    let mut of_b = Memory::new(2 * half);
    let a = of_a.registered(&p.a);
    let b = of_b.registered(&p.b);
    assert_eq!((a.len(), a.start()), (2 * half, of_a.start()));
    for is_expected in [true, false] {
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        let mut at = 0;
        for step in 0..2 {
            at = 0;
            for (tag, size) in (0u64..).zip(PARTS) {
                let message =
                    |seed: u8| -> Vec<u8> { bytes(size).iter().map(|byte| byte ^ seed).collect() };
                if (step == 0) == is_expected {
                    let into = half + at..half + at + size;
                    let which = Match::tag(tag);
                    let to_a = p.a.recv(which, inbox(&a, into.clone()));
                    let to_b = p.b.recv(which, inbox(&b, into));
                    receives.extend([(to_a, message(1)), (to_b, message(0))]);
                } else {
                    sends.push(p.a.send(p.to_b, tag, outbox(&a, at, &message(0))));
                    sends.push(p.b.send(p.to_a, tag, outbox(&b, at, &message(1))));
                }
                at += size;
            }
        }
        assert_eq!(at, half);
        for (receive, message) in receives {
            assert!(p.ok(receive).data() == message);
        }
        for send in sends {
            let sent = p.ok(send);
            assert!(!sent.buffer.is_writable());
        }
    }
}

#[test]
fn parts_of_registered_memory_are_sent_to_oneself_at_once() {
    let p = pair();
    let me = p.a.oneself();
    let size = 100_000;
    let mut memory = Memory::new(6 * size);
    let registered = memory.registered(&p.a);
    let message = |tag: usize| bytes(size + tag)[tag..].to_vec();
    let sends: Vec<_> = (0..3)
        .map(|tag| p.a.send(me, tag as u64, outbox(&registered, tag * size, &message(tag))))
        .collect();
    // Several sends may read the same bytes at once.
    // SAFETY: the part is only read while it is in use.
    let part = unsafe { registered.read_only(size..size + 50_000) }.unwrap();
    let again = p.a.send(me, 3, part);
    for tag in [2, 0, 1] {
        let into = inbox(&registered, (3 + tag) * size..(4 + tag) * size);
        assert!(p.ok(p.a.recv(Match::tag(tag as u64), into)).data() == message(tag));
    }
    assert!(p.ok(p.a.recv(Match::tag(3), vec![0; size])).data() == &message(1)[..50_000]);
    sends.into_iter().chain([again]).for_each(|send| drop(p.ok(send)));
}

#[test]
fn registered_memory_stays_so_until_its_last_part_is_gone() {
    let size = 300_000;
    let mut of_a = Memory::new(size);
    let mut of_b = Memory::new(size);
    let p = pair();
    let a = of_a.registered(&p.a);
    let b = of_b.registered(&p.b);
    let receive = p.b.recv(Match::tag(1), inbox(&b, 0..size));
    let send = p.a.send(p.to_b, 1, outbox(&a, 0, &bytes(size)));
    // The handles go before the operations end.
    drop((a, b));
    let received = p.ok(receive);
    assert!(received.data() == bytes(size));
    let sent = p.ok(send).buffer;
    // The workers go before the parts, which other workers use as any memory.
    drop(p);
    let p = pair();
    let receive = p.b.recv(Match::tag(1), received.buffer);
    p.ok(p.a.send(p.to_b, 1, sent));
    assert!(p.ok(receive).data() == bytes(size));
}

#[test]
fn a_worker_may_go_before_the_handle_of_registered_memory() {
    let mut memory = Memory::new(100_000);
    let worker = Worker::new(config()).unwrap();
    let registered = memory.registered(&worker);
    let clone = registered.clone();
    std::mem::forget(worker.recv(Match::tag(1), inbox(&clone, 0..1000)));
    drop(worker);
    assert_eq!(registered.len(), 100_000);
    std::thread::spawn(|| drop(registered)).join().unwrap();
    // SAFETY: nothing else is in use.
    assert!(unsafe { clone.buffer(0..100_001) }.is_none());
    assert_eq!(inbox(&clone, 99_999..100_000).room().unwrap().fill(b"ab"), 1);
}

#[test]
fn registered_memory_has_bytes_and_an_end() {
    let worker = Worker::new(config()).unwrap();
    let mut memory = Memory::new(8);
    for length in [0, isize::MIN.unsigned_abs(), usize::MAX] {
        // SAFETY: no memory is registered, as it is refused.
        let refused = unsafe { raw::register(&worker, memory.start(), length) };
        let Err(Error::Device(DeviceError::BadBuffer { .. })) = refused else {
            panic!("{length} bytes: {refused:?}")
        };
    }
    assert!(memory.registered(&worker).len() == 8);
}

/// The results of operations of `a`, in the order in which they began.
fn results(p: &Pair, count: usize) -> Vec<Result<(), Error>> {
    let mut ends = Vec::new();
    let start = Instant::now();
    while ends.len() < count {
        p.b.progress();
        p.a.ends(&mut ends, count);
        assert!(start.elapsed() < Duration::from_secs(20), "hangs");
    }
    let result = |end| match end {
        End::Operation { result, .. } => result.map(|_| ()),
        other => panic!("{other:?}"),
    };
    ends.into_iter().map(result).collect()
}

#[test]
fn a_region_at_a_pointer_has_the_key_and_the_base_that_its_owner_has_chosen() {
    let p = pair();
    if !has(Ability::OneSided) {
        return;
    }
    let memory = &mut [7u8; 64];
    let start = NonNull::from(&mut *memory).cast();
    let base = u64::MAX - 63;
    let name = RegionName { key: 5, base, rights: Rights::READ | Rights::WRITE, is_counted: false };
    // SAFETY: the memory is used again only when the region is closed.
    let expose = |name, length| unsafe { raw::expose(&p.b, start, length, name) };
    let region = expose(name, 64).unwrap();
    let again = expose(name, 64).map(drop).unwrap_err();
    assert!(matches!(again, Error::Operation(Fault::NotCarried { .. })), "{again}");
    let endless = expose(RegionName { key: 6, ..name }, usize::MAX).map(drop).unwrap_err();
    assert!(matches!(endless, Error::Device(DeviceError::BadBuffer { .. })), "{endless}");
    let readable =
        expose(RegionName { key: 7, rights: Rights::READ, base: 0, is_counted: false }, 64)
            .unwrap();

    let remote = p.a.attach_key(p.to_b, 5, false).unwrap();
    remote.put_queued(base, bytes(8), None, 0).unwrap();
    // The last byte has the last number that there is, and the next one would have the first.
    remote.put_queued(u64::MAX - 1, bytes(1), None, 0).unwrap();
    remote.put_queued(0, bytes(1), None, 0).unwrap();
    remote.put_queued(base - 1, bytes(1), None, 0).unwrap();
    let other = p.a.attach_key(p.to_b, 7, false).unwrap();
    let atomic = |op: AtomicOp, old: Option<Buffer>| {
        let operands = vec![1; 8 * op.operands()].into();
        other.atomic_queued(8, AtomicAction { op, of: AtomicType::U64, operands, old }, 0).unwrap();
    };
    atomic(AtomicOp::Read, Some(vec![0; 8].into()));
    atomic(AtomicOp::Sum, None);
    atomic(AtomicOp::Sum, Some(vec![0; 8].into()));
    let succeeded: Vec<bool> = results(&p, 7).iter().map(Result::is_ok).collect();
    assert_eq!(succeeded, [true, true, false, false, true, false, false]);
    drop((region, readable));
    assert_eq!((&memory[..8], &memory[8..62]), (&bytes(8)[..], &[7; 54][..]));
    assert_eq!(memory[62..], [bytes(1)[0], 7]);
}

#[test]
fn over_shared_memory_a_region_at_a_pointer_is_written_and_read_without_its_owner() {
    if device() != "shm" {
        return;
    }
    let p = pair();
    let memory = &mut [7u8; 1 << 15];
    let start = NonNull::from(&mut *memory).cast();
    let name = RegionName {
        key: 0,
        base: 1 << 40,
        rights: Rights::READ | Rights::WRITE,
        is_counted: false,
    };
    // SAFETY: the memory is used again only when the region is closed.
    let expose = |name, length| unsafe { raw::expose(&p.b, start, length, name) }.unwrap();
    let region = expose(name, 1 << 15);
    let remote = p.a.attach_key(p.to_b, 0, false).unwrap();
    // The owner makes no progress.
    remote.put(name.base + 96, bytes(20_000)).wait().unwrap();
    assert_eq!(remote.get(name.base + 96, vec![0; 20_000]).wait().unwrap().data(), bytes(20_000));
    assert_eq!(p.a.counters().direct_remote, 2);
    raw::close(region).unwrap();
    assert!(memory[96..20_096] == bytes(20_000) && memory[..96] == [7; 96]);
    // The key is used again, for memory of which the owner counts what peers do.
    let region = expose(RegionName { base: 0, is_counted: true, ..name }, 1 << 15);
    p.ok(remote.put(0, bytes(20_001)));
    let mut put = remote.put(0, bytes(20_001));
    assert!(put.wait_timeout(Duration::ZERO).is_none(), "without the owner");
    assert_eq!((region.done().writes, p.a.counters().direct_remote), (1, 2));
    raw::close(region).unwrap();
    assert_eq!(memory[..20_001], bytes(20_001));
}
