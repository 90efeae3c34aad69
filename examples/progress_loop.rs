//! A runtime's progress loop on the completion queue. All operations are queued, each with a number
//! of the runtime's own. The loop takes their ends, answers requests, and posts their receives
//! again; it is over when all peers have left and no operation is under way.
//!
//! `cargo run --example progress_loop`

use std::collections::HashMap;
use std::thread;

use tagmatch::{Address, Config, End, Error, Match, QueuedSend, Worker};

const REQUEST: u64 = 1;
const REPLY: u64 = 2;
const CLIENTS: usize = 3;
/// Operations with lower numbers are receives, the others are replies.
const RECEIVES: u64 = 8;

fn serve(worker: &Worker) -> Result<(), Error> {
    let receive = |number, buffer| worker.recv_queued(Match::tag(REQUEST), buffer, number);
    let mut under_way = HashMap::new();
    for number in 0..RECEIVES {
        under_way.insert(number, receive(number, worker.buffer(1 << 20))?);
    }
    let mut next = RECEIVES;
    let mut left = 0;
    let mut ends = Vec::with_capacity(64);
    while !under_way.is_empty() {
        worker.ends_blocking(&mut ends, 64);
        for end in ends.drain(..) {
            match end {
                End::PeerUp { peer } => println!("{peer} is connected"),
                End::PeerDown { peer, fault } => {
                    println!("{peer} is down: {fault}");
                    left += 1;
                    if left == CLIENTS {
                        // Cancelled or not, each operation still has its end.
                        under_way.values().for_each(|&it| _ = worker.cancel_queued(it));
                    }
                }
                End::Operation { context: reply @ RECEIVES.., .. } => _ = under_way.remove(&reply),
                End::Operation { context: number, result, buffer } => {
                    under_way.remove(&number);
                    if let Ok(request) = result {
                        let reply = request.length.to_le_bytes().to_vec();
                        // Refused if the client is down, which an end of its own tells.
                        let sent = worker.send_queued(request.source, REPLY, reply, next);
                        if let Ok(QueuedSend::UnderWay(reply)) = sent {
                            under_way.insert(next, reply);
                            next += 1;
                        }
                    }
                    if left < CLIENTS {
                        under_way.insert(number, receive(number, buffer)?);
                    }
                }
                _ => {} // news of a later version
            }
        }
    }
    Ok(())
}

fn client(server: &Address) -> Result<(), Error> {
    let worker = Worker::new(Config::default())?;
    let server = worker.connect(server)?;
    for length in [0, 8, 5_000, 1 << 20].repeat(5) {
        let reply = worker.recv(Match::tag(REPLY).from(server), vec![0; 8]);
        worker.send(server, REQUEST, vec![42; length]).wait()?;
        assert_eq!(reply.wait()?.data(), length.to_le_bytes());
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Error> {
    let server = Worker::new(Config::default().peer_events(true))?;
    let address = server.address();
    let clients = [(); CLIENTS].map(|()| thread::spawn(move || client(&address)));
    serve(&server)?;
    clients.into_iter().try_for_each(|client| client.join().expect("a client panicked"))
}
