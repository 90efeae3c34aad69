//! A request on a borrowed slice can't leave its scope.
use tagmatch::{Config, Match, Worker};

fn main() {
    let worker = Worker::new(Config::default()).unwrap();
    let mut inbox = [0u8; 8];
    let request = worker.scope(|scope| scope.recv(Match::tag(1), &mut inbox));
    drop(request);
}
