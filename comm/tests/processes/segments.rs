//! Memory that the members of a communicator map together: a member that writes garbage into it, a
//! member that dies, and members that count as being on several machines.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use tagmatch::Local;
use tagmatch_comm::coll::{Op, from_bytes, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Comm, Error, ErrorClass, Runtime};

use crate::job::{Job, is_divided, join, machine, say, settings, told, transport};

type Process = Runtime<WorkerNet<Local>>;
type World = Comm<WorkerNet<Local>>;

pub(crate) fn play(role: &str) {
    match role {
        "scribbled" => scribbled(&join::<Local>()),
        "scribbled by machine" => scribbled(&by_machine()),
        "put back" => put_back(&join::<Local>()),
        "leaders" => leaders(&by_machine()),
        "left behind" => left_behind(&join::<Local>(), false),
        "left behind by machine" => left_behind(&by_machine(), false),
        "left in the middle" => left_behind(&join::<Local>(), true),
        other => panic!("no role {other}"),
    }
}

/// Joins a job whose ranks count as being on machines of two ranks each, unless they are divided
/// between two machines anyway.
fn by_machine() -> Process {
    let mut net = transport::<Local>();
    if !is_divided() {
        net = net.on_nodes((0..64).map(|rank| rank / 2).collect());
    }
    Runtime::new(net, settings()).unwrap()
}

/// The places of this process's segments in its memory.
fn segments() -> Vec<Range<u64>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let segments = maps.lines().filter(|line| line.contains("memfd:tagmatch-segment"));
    let place = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    };
    segments.filter_map(place).collect()
}

/// Writes random words all over this process's segment until the process is killed. Some words are
/// as low as those of operations, which have some 20 bits.
fn scribble() -> ! {
    let mut shifts = [0, 16, 32, 42, 63].into_iter().cycle();
    let memory = OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    let place = segments().pop().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    loop {
        let mut words = [0; 16];
        words.fill_with(|| next() >> shifts.next().unwrap());
        let most = place.end - place.start - size_of_val(&words) as u64;
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        memory.write_all_at(&bytes, place.start + next() % most / 8 * 8).unwrap();
    }
}

fn sum(comm: &World) -> Result<u64, Error> {
    comm.allreduce(to_bytes(&[1u64]), &Op::sum::<u64>())
        .wait()
        .map(|sum| from_bytes::<u64>(&sum)[0])
}

/// One operation of each kind, and what came of them.
fn operations(comm: &World, turn: u32) -> [Result<(), Error>; 6] {
    let root = turn % comm.size();
    [
        comm.barrier().wait(),
        sum(comm).map(drop),
        comm.broadcast(root, vec![1; 3000]).wait().map(drop),
        comm.reduce(root, vec![1; 100], &Op::bor()).wait().map(drop),
        comm.allgather(vec![1; 300]).wait().map(drop),
        comm.alltoall(vec![1; 8 * comm.size() as usize]).wait().map(drop),
    ]
}

/// The last rank writes garbage into the segment, and takes part in the operations. The others get
/// wrong data, or errors, or wait, until that rank is killed. Then they learn of the death.
fn scribbled(runtime: &Process) {
    let world = runtime.world();
    let last = world.size() - 1;
    assert!(operations(&world, 0).iter().all(Result::is_ok));
    say("met", "");
    if world.rank() == last {
        told();
        thread::spawn(|| scribble());
        for turn in 0.. {
            let _ = operations(&world, turn);
        }
    }
    let is_end = |ended: &Result<(), Error>| {
        matches!(ended, Err(Error::ProcessFailed { rank: Some(_) } | Error::Revoked))
    };
    let turns = (0..).take_while(|turn| !operations(&world, *turn).iter().any(is_end)).count();
    say("ended", turns);
    world.revoke();
    let left = world.shrink().wait().unwrap();
    assert_eq!((left.size(), sum(&left)), (last, Ok(last.into())));
    left.barrier().wait().unwrap();
    left.barrier().wait().unwrap();
}

#[test]
fn garbage_in_the_segment_harms_no_process() {
    for role in ["scribbled", "scribbled by machine"] {
        let mut job = Job::start(&format!("segments: {role}"), 4);
        (0..4).for_each(|rank| drop(job.hear(rank, "met")));
        job.tell(3, "go");
        thread::sleep(Duration::from_millis(500));
        job.kill(3);
        job.finish(&[3]);
    }
}

/// The memory is put back as it was while two ranks are in an operation, as another process that
/// has mapped it could do. Neither rank sees any more what the other one has published.
fn put_back(runtime: &Process) {
    let world = runtime.world();
    // Each slot is used several times: the contents of its last use are like those of the next.
    (0..20).for_each(|_| assert_eq!(sum(&world), Ok(2)));
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    say("met", "");
    told();
    let read = |place: Range<u64>| {
        let mut bytes = vec![0; usize::try_from(place.end - place.start).unwrap()];
        memory.read_exact_at(&mut bytes, place.start).unwrap();
        (place.start, bytes)
    };
    let before: Vec<_> = segments().into_iter().map(read).collect();
    let undo = || before.iter().for_each(|(at, bytes)| memory.write_all_at(bytes, *at).unwrap());
    let mut request = world.allreduce(to_bytes(&[1u64]), &Op::sum::<u64>()).start();
    if world.rank() == 0 {
        undo();
    }
    say("begun", "");
    told();
    if world.rank() == 0 {
        undo();
        say("undone", "");
    }
    let start = Instant::now();
    while request.test().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "the ranks wait for each other");
        thread::yield_now();
    }
}

#[test]
fn ranks_do_not_wait_for_each_other_for_ever_after_their_words_were_overwritten() {
    let mut job = Job::start("segments: put back", 2);
    (0..2).for_each(|rank| drop(job.hear(rank, "met")));
    // Rank 1 begins after what rank 0 has published is gone.
    for rank in [0, 1] {
        job.tell(rank, "go");
        job.hear(rank, "begun");
    }
    job.tell(0, "go");
    job.hear(0, "undone");
    job.tell(1, "go");
    job.finish(&[]);
}

/// Operations between ranks that count as being on several machines.
fn leaders(runtime: &Process) {
    let world = runtime.world();
    let rank = world.rank();
    let size = world.size();
    let machine = |rank: u32| {
        if is_divided() { machine(rank as usize, size as usize) } else { rank as usize / 2 }
    };
    let here = (0..size).filter(|other| machine(*other) == machine(rank)).count();
    assert_eq!(world.intranode().unwrap().size() as usize, here);
    for turn in 0..300 {
        let root = turn % size;
        world.barrier().wait().unwrap();
        assert_eq!(sum(&world), Ok(size.into()));
        let copy = world.broadcast(root, to_bytes(&[rank; 500])).start();
        let most = world.reduce(root, to_bytes(&[rank]), &Op::max::<u32>()).wait().unwrap();
        let is_right =
            if rank == root { from_bytes::<u32>(&most) == [size - 1] } else { most.is_empty() };
        assert!(is_right, "{most:?}");
        assert_eq!(copy.wait().unwrap(), to_bytes(&[root; 500]));
    }
    assert_eq!(segments().len(), 1);
}

#[test]
fn ranks_of_several_machines_have_leaders() {
    for ranks in [3, 4, 7] {
        Job::start("segments: leaders", ranks).finish(&[]);
    }
}

/// Numbers of this process's descriptors, of its mappings of shared memory, and of its segments.
fn held() -> [usize; 3] {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_shared = |line: &&str| line.contains("/memfd:") || line.contains("/dev/shm/");
    let mappings = maps.lines().filter(is_shared).count();
    [fs::read_dir("/proc/self/fd").unwrap().count(), mappings, segments().len()]
}

/// Whether this process comes to hold no more of each than `most`. Some descriptors are closed a
/// while after their operation, by progress or by another thread.
fn comes_to_hold(runtime: &Process, most: [usize; 3]) -> bool {
    let start = Instant::now();
    let is_in = || held().iter().zip(most).all(|(held, most)| *held <= most);
    while !is_in() && start.elapsed() < Duration::from_secs(20) {
        runtime.progress();
        thread::yield_now();
    }
    is_in()
}

/// A reduction that takes many rounds in the segment.
fn long_reduction(comm: &World) -> Result<(), Error> {
    let own = 1 << comm.rank();
    let all = comm.allreduce(vec![own; 4 << 20], &Op::bor()).wait()?;
    assert!(all.iter().all(|bits| *bits == (1 << comm.size()) - 1));
    Ok(())
}

/// The last rank is killed while it is a member of a communicator with a segment. `in_the_middle`:
/// all ranks repeat long reductions then. Otherwise the others wait for the last rank.
fn left_behind(runtime: &Process, in_the_middle: bool) {
    let world = runtime.world();
    let last = world.size() - 1;
    // Everything that stays is there before the first count.
    sum(&world).unwrap();
    let copy = world.dup().wait().unwrap();
    sum(&copy.shrink().wait().unwrap()).unwrap();
    drop(copy);
    world.barrier().wait().unwrap();
    let settled = Instant::now() + Duration::from_millis(300);
    while Instant::now() < settled {
        runtime.progress();
        thread::yield_now();
    }
    let before = held();
    let copy = world.dup().wait().unwrap();
    sum(&copy).unwrap();
    // The maker's descriptor of a segment is closed once all have mapped it.
    let [descriptors, mappings, segments] = before;
    assert!(comes_to_hold(runtime, [descriptors, mappings + 1, segments + 1]), "{before:?}");
    assert_eq!(held()[2], segments + 1);
    say("met", "");
    if copy.rank() == last && !in_the_middle {
        loop {
            runtime.progress();
            thread::yield_now();
        }
    }
    let operation = || if in_the_middle { long_reduction(&copy) } else { sum(&copy).map(drop) };
    let error = (0..).find_map(|_| operation().err()).unwrap();
    assert_eq!(error.class(), ErrorClass::ProcessFailed);
    // Every rank has learned of the death by itself before the first one revokes.
    say("failed", "");
    told();
    copy.revoke();
    let left = copy.shrink().wait().unwrap();
    assert_eq!(sum(&left), Ok(last.into()));
    drop((left, copy));
    assert!(comes_to_hold(runtime, before), "{before:?} {:?}", held());
    let end = world.shrink().wait().unwrap();
    end.barrier().wait().unwrap();
    end.barrier().wait().unwrap();
}

#[test]
fn nothing_is_left_of_a_segment_whose_member_was_killed() {
    for (role, ranks) in [("left behind", 3), ("left behind by machine", 4)] {
        kill_last(role, ranks, Duration::ZERO);
    }
}

#[test]
fn a_death_in_the_middle_of_a_long_reduction_reaches_all_members() {
    for after_ms in [3, 10, 31] {
        kill_last("left in the middle", 3, Duration::from_millis(after_ms));
    }
}

/// Kills the last rank this long after all ranks have met. Each other rank says that an operation
/// has failed.
fn kill_last(role: &str, ranks: usize, after: Duration) {
    let mut job = Job::start(&format!("segments: {role}"), ranks);
    let last = ranks - 1;
    (0..ranks).for_each(|rank| drop(job.hear(rank, "met")));
    thread::sleep(after);
    job.kill(last);
    (0..last).for_each(|rank| drop(job.hear(rank, "failed")));
    (0..last).for_each(|rank| job.tell(rank, "go"));
    job.finish(&[last]);
}
