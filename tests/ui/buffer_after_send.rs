//! A buffer that was sent is the send's until it is complete.
use tagmatch::{Config, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    let message = vec![1u8, 2, 3];
    let send = worker.send(worker.oneself(), 1, message);
    println!("{message:?}");
    drop(send);
}
