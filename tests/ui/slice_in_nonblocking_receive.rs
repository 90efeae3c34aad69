//! A non-blocking receive owns its buffer: a borrowed slice is refused.
use tagmatch::{Config, Match, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    let mut inbox = [0u8; 8];
    let request = worker.recv(Match::tag(1), &mut inbox[..]);
    std::mem::forget(request);
}
