//! A worker for one thread stays on it; `SharedWorker` is for many.
use tagmatch::{Config, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    std::thread::spawn(move || drop(worker));
}
