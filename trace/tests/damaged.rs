//! A damaged file of records is an error that names a byte, or a trace that can be replayed; never
//! a panic.

use tagmatch::{Config, Match, Worker};
use tagmatch_testkit::random::Random;
use tagmatch_trace::{Recorder, Trace, check, fuzzing};

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
    let (mut refused, mut replayed) = (0, 0);
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
                assert!(error.contains("must") || error.contains("would be right"), "{error}");
            }
        }
    }
    assert!(refused > 100 && replayed > 100, "{refused}, {replayed}");
}

#[test]
fn records_in_any_order_are_refused_or_replayed() {
    let mut random = Random::new(2);
    let (mut refused, mut replayed) = (0, 0);
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
