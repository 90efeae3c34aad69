//! What a worker does is recorded while it runs, and a replay of the trace does the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tagmatch::model::{Knobs, ModelConfig};
use tagmatch::{
    Config, Counters, End, Error, HwTags, Match, Message, Peer, QueuedRequest, SendOptions, Tag,
    TagLayout, TagMask, Worker,
};
use tagmatch_testkit::random::Random;
use tagmatch_trace::workers::{Agreement, replay};
use tagmatch_trace::{
    Fidelity, FidelityCounter, Id, IndexedLists, OpResult, Recorder, Stop, Trace, TraceOp, check,
    run,
};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tagmatch-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn read(file: &Path) -> Trace {
    Trace::parse(BufReader::new(File::open(file).unwrap())).unwrap()
}

/// A program in progress: one worker that receives, and some that send to it.
struct Program {
    random: Random,
    /// Most of what it does is for a NIC.
    for_nic: bool,
    receiver: Worker,
    senders: Vec<(Worker, Peer)>,
    /// The senders, and the receiver itself, as the receiver knows them.
    sources: Vec<Peer>,
    posted: Vec<QueuedRequest>,
    held: Vec<Message>,
    /// The bits of tags that probes have looked for.
    probed: Vec<u64>,
    messages: usize,
    /// The lengths of the messages that receives got, by the receive's number.
    received: BTreeMap<u64, usize>,
    cancelled: u64,
}

/// Each message has a length of its own, by which it is known again.
const EAGER: usize = 4000;

impl Program {
    fn new(seed: u64, hw_tags: HwTags, file: &Path) -> Self {
        let for_nic = !matches!(hw_tags, HwTags::Off);
        let receiver = Worker::new(Config::default().hw_tags(hw_tags)).unwrap();
        let recorder = Recorder::create(file, "a random program", u64::MAX).unwrap();
        receiver.observe(Box::new(recorder)).unwrap();
        let mut sources = vec![receiver.oneself()];
        let mut senders = Vec::new();
        for _ in 0..3 {
            let sender = Worker::new(Config::default()).unwrap();
            let to = sender.connect(&receiver.address()).unwrap();
            sender.inject(to, u64::MAX, &[]).unwrap();
            let first = loop {
                if let Some(first) = receiver.mprobe(Match::tag(u64::MAX)).unwrap() {
                    break first;
                }
                sender.progress();
            };
            sources.push(first.status().source);
            senders.push((sender, to));
        }
        let random = Random::new(seed);
        let posted = Vec::new();
        let held = Vec::new();
        let probed = Vec::new();
        let received = BTreeMap::new();
        let messages = 0;
        let cancelled = 0;
        Self {
            random,
            for_nic,
            receiver,
            senders,
            sources,
            posted,
            held,
            probed,
            messages,
            received,
            cancelled,
        }
    }

    /// A pattern, and the bits of the tag that it looks for.
    fn which(&mut self) -> (Match, u64) {
        if self.for_nic && self.random.chance(9, 10) {
            let tag = self.random.below(3);
            return (Match::tag(tag), tag);
        }
        let tag = Tag(self.random.below(3) | self.random.below(2) << 60);
        let masks = [TagMask::EXACT, TagMask(!(1 << 60)), TagMask(1 << 60), TagMask::ANY];
        let mask = self.random.pick(&masks);
        let which = Match::masked(tag, mask);
        let bits = tag.0 & mask.0;
        if self.random.chance(1, 2) {
            return (which, bits);
        }
        let source = self.random.pick(&self.sources);
        (which.from(source), bits)
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=7 => self.send(),
            8..=14 => {
                let (which, _) = self.which();
                let room =
                    if self.for_nic { 1 << 16 } else { self.random.pick(&[16, 2048, 1 << 16]) };
                let context = self.posted.len() as u64;
                let posted = self.receiver.recv_queued(which, vec![0; room], context).unwrap();
                self.posted.push(posted);
            }
            15 if !self.posted.is_empty() => {
                let request = self.random.pick(&self.posted);
                self.receiver.cancel_queued(request);
            }
            16 => {
                let (which, bits) = self.which();
                self.probed.push(bits);
                self.receiver.probe(which).unwrap();
            }
            17 => {
                let (which, bits) = self.which();
                self.probed.push(bits);
                self.held.extend(self.receiver.mprobe(which).unwrap());
            }
            18 => match self.held.pop() {
                Some(message) if self.random.chance(2, 3) => {
                    message.recv(vec![0; 100]).wait().unwrap();
                }
                dropped => drop(dropped),
            },
            _ => self.progress(),
        }
    }

    fn send(&mut self) {
        self.messages += 1;
        let is_long = self.random.chance(1, 8);
        let length = self.messages + if is_long { 8 * EAGER } else { 0 };
        let for_nic = self.for_nic && self.random.chance(9, 10);
        let high = if for_nic { 0 } else { self.random.below(2) };
        let tag = self.random.below(3) | high << 60;
        let at = self.random.index(self.senders.len() + usize::from(!for_nic));
        let (worker, to) = match self.senders.get(at) {
            Some((worker, to)) => (worker, *to),
            None => (&self.receiver, self.receiver.oneself()),
        };
        let options = SendOptions::default();
        let _ =
            worker.send_queued_with(to, tag, vec![1; length], options.context(u64::MAX)).unwrap();
    }

    fn progress(&mut self) {
        let mut ends = Vec::new();
        for (sender, _) in &self.senders {
            sender.ends(&mut ends, 100);
        }
        ends.clear();
        self.receiver.ends(&mut ends, 100);
        for end in ends {
            let End::Operation { context, result, .. } = end else { continue };
            match result {
                _ if context == u64::MAX => {}
                Ok(status) => {
                    self.received.insert(context, status.length);
                }
                Err(Error::Cancelled) => self.cancelled += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until nothing is under way; gives what was received and how many were cancelled.
    fn finish(mut self) -> (BTreeMap<u64, usize>, u64, u64) {
        for _ in 0..2000 {
            self.progress();
        }
        let hardware = self.receiver.counters().hardware;
        assert_eq!(self.receiver.counters().list_faults, 0);
        (self.received, self.cancelled, hardware)
    }
}

/// What a replay through the lists comes to: as [`Program::finish`] has it.
fn replayed(trace: &Trace) -> (BTreeMap<u64, usize>, u64, Fidelity) {
    check(trace);
    let receives = trace.ops.iter().filter_map(|op| match op {
        TraceOp::Recv { id, .. } => Some(*id),
        _ => None,
    });
    let receives: BTreeMap<Id, u64> = receives.zip(0..).collect();
    let mut received = BTreeMap::new();
    let mut cancelled = 0;
    let mut fidelity = FidelityCounter::new(trace);
    run(trace, IndexedLists::default(), u64::MAX, |op, result| {
        fidelity.see(op, result);
        match result {
            Some(OpResult::Match { recv, msg, .. }) => {
                let length = usize::try_from(trace.lens[msg.index()]).unwrap();
                assert_eq!(received.insert(receives[&recv], length), None);
            }
            Some(OpResult::Cancelled { .. }) => cancelled += 1,
            _ => {}
        }
        Ok::<(), std::convert::Infallible>(())
    })
    .unwrap();
    (received, cancelled, fidelity.fidelity().unwrap())
}

/// The bits of tags that probes have looked for, without those that wait for the first messages.
/// A trace has equal probes in a row that find nothing once.
fn probes(trace: &Trace) -> Vec<u64> {
    let bits = trace.ops.iter().filter_map(|op| match op {
        TraceOp::Probe { pattern } | TraceOp::Mprobe { pattern, .. } => {
            Some(pattern.tag().0 & pattern.mask().0)
        }
        _ => None,
    });
    let mut bits: Vec<u64> = bits.filter(|bits| *bits != u64::MAX).collect();
    bits.dedup();
    bits
}

fn nic(slots: u32, seed: u64) -> HwTags {
    let knobs = Knobs::random(seed);
    HwTags::Model(
        ModelConfig::default().slots(slots).operations(2 * slots + 2).seed(seed).knobs(knobs),
    )
}

/// Records a random program, and replays it: through the lists, and with a NIC.
fn agree(seed: u64, hw_tags: HwTags, file: &Path) -> u64 {
    let mut program = Program::new(seed, hw_tags, file);
    for _ in 0..400 {
        program.step();
    }
    let mut probed = std::mem::take(&mut program.probed);
    probed.dedup();
    let (received, cancelled, hardware) = program.finish();
    let trace = read(file);
    assert_eq!(probes(&trace), probed, "seed {seed}");
    let (again, cancelled_again, fidelity) = replayed(&trace);
    assert_eq!((again, cancelled_again), (received, cancelled), "seed {seed}");
    assert_eq!((fidelity.differing, fidelity.first), (0, 0), "seed {seed}");
    assert!(fidelity.compared > 200 && trace.stop.is_none());
    for (hw_tags, seed) in [(HwTags::Off, None), (nic(16, seed), Some(seed))] {
        let workers = replay(&trace, hw_tags, seed).unwrap();
        let mut agreement = Agreement::new(&workers);
        let pass = run(&trace, IndexedLists::default(), u64::MAX, |_, result| {
            agreement.see(result);
            Ok::<(), std::convert::Infallible>(())
        });
        agreement.finish(&pass.unwrap().lists.leftover()).unwrap();
    }
    hardware
}

#[test]
fn a_replay_of_a_recorded_program_matches_as_the_program_did() {
    let file = folder("record").join("program.trace");
    for seed in 0..40 {
        agree(seed, HwTags::Off, &file);
    }
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn a_replay_matches_as_a_nic_did() {
    let file = folder("record-nic").join("program.trace");
    let hardware: u64 = (0..100).map(|seed| agree(seed, nic(8, seed), &file)).sum();
    assert!(hardware > 500, "{hardware}");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

/// A program that sends itself a message, and then receives from another worker, whose number is in
/// the tags where `layout` has it. Gives the counters of its worker.
fn with_a_message_to_itself(layout: TagLayout, any_source: bool, file: &Path) -> Counters {
    let hw_tags = HwTags::Model(ModelConfig::default());
    let receiver = Worker::new(Config::default().hw_tags(hw_tags).layout(layout)).unwrap();
    receiver.observe(Box::new(Recorder::create(file, "", u64::MAX).unwrap())).unwrap();
    let sender = Worker::new(Config::default()).unwrap();
    let to = sender.connect(&receiver.address()).unwrap();
    let settle = || (0..2000).map(|_| sender.progress() + receiver.progress()).sum::<usize>();
    let source = |source: u64| source << layout.tag_bits();
    let all = if any_source { !layout.source_mask().0 } else { u64::MAX };
    let receive = |from, tag| {
        let which = Match::masked(Tag(source(from) | tag), TagMask(all));
        let receive = receiver.recv(which, vec![0; 4096]);
        settle();
        receive
    };
    let own = receive(1, 1);
    receiver.send(receiver.oneself(), source(1) | 1, vec![0; 5]).wait().unwrap();
    own.wait().unwrap();
    for tag in 2..20 {
        let next = receive(2, tag);
        sender.inject(to, source(2) | tag, &[0; 5]).unwrap();
        settle();
        next.wait().unwrap();
    }
    receiver.counters()
}

#[test]
fn a_replay_gives_a_nic_the_receives_that_the_program_gave_it() {
    let file = folder("record-layout").join("program.trace");
    // Where the tags of Open MPI and MPICH have their source; and tags without one.
    let layouts = [(16, 24, 24), (11, 18, 34), (16, 23, 19), (64, 0, 0)];
    for (context, source, tag) in layouts {
        let layout = TagLayout::new(context, source, tag).unwrap();
        for any_source in [false, true] {
            let live = with_a_message_to_itself(layout, any_source, &file);
            let pinned = source > 0 && !any_source;
            assert_eq!(live.hardware > 10, pinned, "{layout:?}: {live:?}");
            let trace = read(&file);
            let again = replay(&trace, HwTags::Model(ModelConfig::default()), None).unwrap();
            let counts = |c: &Counters| (c.hardware, c.posted, c.unexpected, c.not_offloaded);
            assert_eq!(counts(&again.counters), counts(&live), "{layout:?}");
        }
    }
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn what_was_on_the_lists_before_is_told_first() {
    let file = folder("record-late").join("program.trace");
    let worker = Worker::new(Config::default()).unwrap();
    let oneself = worker.oneself();
    let receive = worker.recv(Match::tag(1), vec![0; 8]);
    worker.send(oneself, 2, vec![0; 5]).wait().unwrap();
    worker.progress();
    worker.observe(Box::new(Recorder::create(&file, "", u64::MAX).unwrap())).unwrap();
    worker.send(oneself, 1, vec![0; 3]).wait().unwrap();
    receive.wait().unwrap();
    worker.recv(Match::any(), vec![0; 8]).wait().unwrap();
    let (received, ..) = replayed(&read(&file));
    assert_eq!(received, BTreeMap::from([(0, 3), (1, 5)]));
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn a_full_trace_says_so_and_is_whole() {
    let file = folder("record-full").join("program.trace");
    let worker = Worker::new(Config::default()).unwrap();
    worker.observe(Box::new(Recorder::create(&file, "a\tb", 200_000).unwrap())).unwrap();
    for _ in 0..20_000 {
        let receive = worker.recv(Match::any(), vec![0; 8]);
        worker.send(worker.oneself(), 1, vec![0; 5]).wait().unwrap();
        receive.wait().unwrap();
    }
    assert!(std::fs::metadata(&file).unwrap().len() <= 200_000);
    let trace = read(&file);
    assert_eq!((trace.stop, &*trace.about), (Some(Stop::Full), "a b"));
    assert!(trace.ops.len() > 8000);
    assert_eq!(replayed(&trace).2.differing, 0);
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn a_killed_process_leaves_all_that_it_recorded() {
    let folder = folder("record-killed");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_process_to_kill", "--nocapture"])
        .env("TAGMATCH_TRACE_TEST", &folder)
        .env("PMI_RANK", "3")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        count = line.unwrap().strip_prefix("received ").map_or(count, |n| n.parse().unwrap());
        if count >= 5000 {
            break;
        }
    }
    assert!(count >= 5000, "it said {count}");
    child.kill().unwrap();
    child.wait().unwrap();
    let trace = read(&folder.join("rank-3.trace"));
    let (received, _, fidelity) = replayed(&trace);
    assert!(received.len() >= count, "{} of {count}", received.len());
    assert_eq!(fidelity.differing, 0);
    assert!(trace.about.starts_with("rank-3 on "), "{}", trace.about);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A program that receives until it is killed.
#[test]
#[ignore = "started by a_killed_process_leaves_all_that_it_recorded"]
fn a_process_to_kill() {
    let Some(folder) = std::env::var_os("TAGMATCH_TRACE_TEST") else { return };
    let (recorder, _) = Recorder::in_folder(Path::new(&folder), Recorder::BYTES_MAX).unwrap();
    let worker = Worker::new(Config::default()).unwrap();
    worker.observe(Box::new(recorder)).unwrap();
    let mut out = std::io::stdout();
    for received in 1u64.. {
        let receive = worker.recv(Match::tag(received), vec![0; 8]);
        worker.send(worker.oneself(), received, vec![0; 5]).wait().unwrap();
        receive.wait().unwrap();
        // The end of the pipe ends a child whose parent is gone.
        writeln!(out, "received {received}").unwrap();
    }
}

#[test]
fn each_worker_of_a_process_has_a_file_of_its_own() {
    let folder = folder("several-recorders");
    let files = [(); 3].map(|()| {
        let worker = Worker::new(Config::default()).unwrap();
        let (recorder, file) = Recorder::in_folder(&folder, u64::MAX).unwrap();
        worker.observe(Box::new(recorder)).unwrap();
        drop(worker.recv(Match::tag(1), vec![0; 8]));
        file
    });
    for file in &files {
        assert!(!read(file).ops.is_empty(), "{}", file.display());
        assert_eq!(files.iter().filter(|other| *other == file).count(), 1);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
