//! A request on a borrowed slice that ends with its scope.
use tagmatch::{Config, Match, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    let mut inbox = [0u8; 8];
    worker.scope(|scope| drop(scope.recv(Match::tag(1), &mut inbox)));
    drop(inbox);
}
