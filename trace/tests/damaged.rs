//! A damaged file of records is an error that names a byte, or a trace that can be replayed; never
//! a panic.

use tagmatch::{Config, Match, Worker};
use tagmatch_testkit::random::Random;
use tagmatch_trace::{Recorder, Trace, TraceOp, check, fuzzing};

#[test]
fn whatever_is_damaged_nothing_panics() {
    let file = std::env::temp_dir().join(format!("tagmatch-damaged-{}", std::process::id()));
    let worker = Worker::new(Config::default()).unwrap();
    let recorder = Recorder::create(&file, "damaged", Recorder::BYTES_MAX).unwrap();
    worker.observe(Box::new(recorder)).unwrap();
    for tag in 0..1500 {
        let receive = worker.recv(Match::tag(tag % 7), vec![0; 8]);
        worker.send(worker.oneself(), tag % 7, vec![0; 5]).wait().unwrap();
        receive.wait().unwrap();
        drop(worker.recv(Match::any(), vec![0; 8]));
        worker.send(worker.oneself(), 9, vec![0; 5]).wait().unwrap();
        worker.progress();
        drop(worker.mprobe(Match::any().from(worker.oneself())).unwrap());
    }
    let whole = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(whole.len() > 4096 + 2 * 32768, "{} bytes", whole.len());
    assert!(Trace::parse(&whole[..]).unwrap().ops.len() > 7000);
    let mut random = Random::new(1);
    let mut refused = 0;
    let mut replayed = 0;
    for _ in 0..800 {
        let mut bytes = whole.clone();
        for _ in 0..random.below(4) {
            let at = random.index(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        if random.chance(1, 4) {
            bytes.truncate(random.index(whole.len()));
        }
        match Trace::parse(&bytes[..]) {
            Ok(trace) => {
                replayed += 1;
                if replayed % 8 == 0 {
                    check(&trace);
                }
            }
            Err(error) => {
                refused += 1;
                let error = error.to_string();
                assert!(!error.contains(char::is_control), "{error}");
                assert!(error.contains("must") || error.contains("expected"), "{error}");
            }
        }
    }
    assert!(refused > 100 && replayed > 100, "{refused}, {replayed}");
}

#[test]
fn records_in_any_order_are_refused_or_replayed() {
    let mut random = Random::new(2);
    let mut refused = 0;
    let mut replayed = 0;
    for _ in 0..1000 {
        let length = 4 * random.index(6);
        let data: Vec<u8> = (0..length).map(|_| random.bits().to_le_bytes()[0]).collect();
        match Trace::parse(&fuzzing::records(&data)[..]) {
            Ok(trace) => {
                check(&trace);
                replayed += usize::from(!trace.ops.is_empty());
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 100 && replayed > 10, "{refused}, {replayed}");
}

/// The worker records a receive and a message to itself.
fn record_one(worker: &Worker, tag: u64) {
    let receive = worker.recv(Match::tag(tag), vec![0; 8]);
    worker.send(worker.oneself(), tag, vec![0; 5]).wait().unwrap();
    receive.wait().unwrap();
}

fn ops(bytes: &[u8]) -> Vec<TraceOp> {
    Trace::parse(bytes).unwrap().ops
}

/// A process that is killed may have stored all of its last record but the first word.
#[test]
fn a_record_that_was_half_written_is_left_out() {
    let file = std::env::temp_dir().join(format!("tagmatch-torn-{}", std::process::id()));
    let worker = Worker::new(Config::default()).unwrap();
    let recorder = Recorder::create(&file, "killed", Recorder::BYTES_MAX).unwrap();
    worker.observe(Box::new(recorder)).unwrap();
    record_one(&worker, 7);
    let before = std::fs::read(&file).unwrap();
    let _receive = worker.recv(Match::tag(8), vec![0; 8]);
    let mut after = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(ops(&after).len(), ops(&before).len() + 1);
    let words = before.chunks(8).zip(after.chunks(8));
    let differ: Vec<usize> =
        words.enumerate().filter(|(_, (old, new))| old != new).map(|(at, _)| at).collect();
    assert!(differ.len() > 1, "the record has one word that isn't zero");
    after[8 * differ[0]..][..8].fill(0);
    assert_eq!(ops(&after), ops(&before));
    // Nothing is written so far behind the last record.
    after[8 * differ[0] + 400] = 1;
    assert!(Trace::parse(&after[..]).is_err());
}

/// A process that is killed may have appended a block, and not emptied the window yet.
#[test]
fn a_block_that_is_in_the_window_too_counts_once() {
    const WINDOW: usize = 4096;
    const BLOCK: usize = 32768;
    let file = std::env::temp_dir().join(format!("tagmatch-twice-{}", std::process::id()));
    let worker = Worker::new(Config::default()).unwrap();
    let recorder = Recorder::create(&file, "killed", Recorder::BYTES_MAX).unwrap();
    worker.observe(Box::new(recorder)).unwrap();
    while std::fs::metadata(&file).unwrap().len() < (WINDOW + 3 * BLOCK) as u64 {
        record_one(&worker, 7);
    }
    let mut empty = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    empty[WINDOW..WINDOW + BLOCK].fill(0);
    let mut full = empty.clone();
    let last = full.len() - BLOCK;
    full.copy_within(last.., WINDOW);
    assert_eq!(ops(&full), ops(&empty));
    // Another block than the last one is a mistake.
    full.copy_within(WINDOW + BLOCK..WINDOW + 2 * BLOCK, WINDOW);
    assert!(Trace::parse(&full[..]).is_err());
}
