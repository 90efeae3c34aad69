//! A server with several threads. A matched probe takes a request for one thread alone, and tells
//! its length before there is a buffer. In the end, a flag and an [`Interrupter`] stop the threads.
//!
//! `cargo run --example server_with_threads`
//!
//! [`Interrupter`]: tagmatch::Interrupter

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use tagmatch::{Address, Config, Error, Match, SharedWorker, Worker};

const REQUEST: u64 = 1;
const REPLY: u64 = 2;
/// A longer request is cut off, so that no client can make the server allocate without bound.
const LONGEST: usize = 1 << 20;

/// One thread of the server. Gives the number of requests that it has served.
fn serve(worker: &SharedWorker, is_over: &AtomicBool) -> Result<usize, Error> {
    let mut served = 0;
    while !is_over.load(Ordering::Acquire) {
        // `None`: the call was interrupted. A request that is there comes first, so the flag is
        // read after each return.
        if let Some(request) = worker.mprobe_timeout(Match::tag(REQUEST), Duration::MAX)? {
            let length = request.status().length.min(LONGEST);
            let received = request.recv(worker.buffer(length)).wait()?;
            worker.send(received.status.source, REPLY, received.buffer).wait()?;
            served += 1;
        }
    }
    // An interrupt reaches the threads that are blocked, or the next one to block. So each thread
    // that ends passes it on to those that were still busy.
    worker.interrupter().interrupt();
    Ok(served)
}

fn client(server: &Address) -> Result<(), Error> {
    let worker = Worker::new(Config::default())?;
    let server = worker.connect(server)?;
    for length in [0, 8, 5_000, 1 << 20].repeat(5) {
        let reply = worker.recv(Match::tag(REPLY).from(server), vec![0; length]);
        worker.send(server, REQUEST, vec![42; length]).wait()?;
        assert_eq!(reply.wait()?.data(), vec![42; length]);
    }
    Ok(())
}

pub(crate) fn main() -> Result<(), Error> {
    let server = SharedWorker::new(Config::default())?;
    let address = server.address();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads = [(); 3].map(|()| scope.spawn(|| serve(&server, &is_over)));
        let clients = [(); 4].map(|()| scope.spawn(|| client(&address)));
        let clients = clients.map(ScopedJoinHandle::join);
        is_over.store(true, Ordering::Release);
        server.interrupter().interrupt();
        for thread in threads {
            println!("a thread served {} requests", thread.join().expect("a thread panicked")?);
        }
        clients.into_iter().try_for_each(|client| client.expect("a client panicked"))
    })
}
