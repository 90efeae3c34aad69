//! A slice that is lent to a scope outlives the scope.
use tagmatch::{Config, Match, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    worker.scope(|scope| {
        let mut inbox = [0u8; 8];
        let request = scope.recv(Match::tag(1), &mut inbox);
        std::mem::forget(request);
    });
}
