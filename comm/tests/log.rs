//! The log of collective operations.

use std::sync::Mutex;

use log::{Level, LevelFilter, Log, Metadata, Record};
use tagmatch::{Config as WorkerConfig, Worker};
use tagmatch_comm::coll::{Op, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime};

struct Lines(Mutex<Vec<String>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() == Level::Trace {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_learns_how_a_collective_operation_is_carried_out() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let worker = Worker::new(WorkerConfig::default()).unwrap();
    let addresses = vec![worker.address()];
    let net = WorkerNet::new(worker, addresses, 0).unwrap();
    let runtime = Runtime::new(net, Config::default()).unwrap();
    runtime.world().allreduce(to_bytes(&[20u64]), &Op::sum::<u64>()).wait().unwrap();
    let lines = LINES.0.lock().unwrap();
    assert!(
        lines.iter().any(|line| line.starts_with("Allreduce of 8 bytes in context")),
        "{lines:?}"
    );
}
