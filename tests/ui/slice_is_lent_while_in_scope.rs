//! While a scope may still write to a slice, nobody else touches it.
use tagmatch::{Config, Match, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    let mut inbox = [0u8; 8];
    worker.scope(|scope| {
        let request = scope.recv(Match::tag(1), &mut inbox);
        inbox[0] = 1;
        drop(request);
    });
}
