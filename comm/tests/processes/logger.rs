//! The log of collective operations.

use std::cell::RefCell;

use log::{Level, LevelFilter, Log, Metadata, Record};
use tagmatch::{Config as WorkerConfig, Worker};
use tagmatch_comm::coll::{Op, to_bytes};
use tagmatch_comm::net::worker::WorkerNet;
use tagmatch_comm::{Config, Runtime};

thread_local! {
    /// The lines of this thread, if it keeps them: other tests run in other threads.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // A thread that ends may log after its lines are gone.
        let keeps_lines = || LINES.try_with(|lines| lines.borrow().is_some());
        metadata.level() == Level::Trace && keeps_lines().unwrap_or(false)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = record.args().to_string();
            LINES.with_borrow_mut(|lines| lines.as_mut().unwrap().push(line));
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_logger_learns_how_a_collective_operation_is_carried_out() {
    LINES.set(Some(Vec::new()));
    log::set_logger(&Lines).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let worker = Worker::new(WorkerConfig::default()).unwrap();
    let addresses = vec![worker.address()];
    let net = WorkerNet::new(worker, addresses, 0).unwrap();
    let runtime = Runtime::new(net, Config::default()).unwrap();
    runtime.world().allreduce(to_bytes(&[20u64]), &Op::sum::<u64>()).wait().unwrap();
    let lines = LINES.take().unwrap();
    assert!(
        lines.iter().any(|line| line.starts_with("Allreduce of 8 bytes in context")),
        "{lines:?}"
    );
}
