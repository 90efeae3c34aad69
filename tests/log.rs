//! The log of a worker.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};
use tagmatch::{Config, Match, Worker};

/// A limit that is reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

struct Lines(Mutex<Vec<(Level, String)>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

impl Lines {
    fn count(&self, level: Level, text: &str) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|(of, line)| *of == level && line.contains(text)).count()
    }
}

#[test]
fn a_logger_learns_of_peers_and_of_receives_that_the_nic_did_not_match() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let config = || {
        let config = Config::default();
        #[cfg(feature = "model")]
        let config =
            config.hw_tags(tagmatch::HwTags::Model(tagmatch::model::ModelConfig::default()));
        config
    };
    let a = Worker::new(config()).unwrap();
    let b = Worker::new(config()).unwrap();
    assert_eq!(LINES.count(Level::Debug, "reached over shm"), 2);
    let to_b = a.connect(&b.address()).unwrap();
    let mut receive = b.recv(Match::tag(1), vec![0; 8]);
    let mut send = a.send_sync(to_b, 1, vec![7; 8]);
    let progress_until = |is_over: &mut dyn FnMut() -> bool| {
        let start = Instant::now();
        while !is_over() {
            a.progress();
            b.progress();
            assert!(start.elapsed() < PATIENCE, "{:?}", LINES.0);
        }
    };
    progress_until(&mut || send.test().is_some());
    progress_until(&mut || receive.test().is_some());
    // Each end of the connection, and each worker to itself.
    assert_eq!(LINES.count(Level::Debug, "is connected"), 4);
    #[cfg(feature = "model")]
    assert_eq!(LINES.count(Level::Trace, "not matched by the NIC: too small"), 1);
    a.disconnect(to_b).unwrap();
    progress_until(&mut || LINES.count(Level::Debug, "is down") == 2);
    assert_eq!(LINES.count(Level::Debug, "is down: its worker was dropped, or disconnected"), 1);
}
