//! Requests awaited on one thread of tokio. No other thread makes progress: while the program
//! waits, tokio watches the worker's descriptor.
//!
//! `cargo run --example await_with_async_fd`

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Poll, ready};

use tagmatch::{Config, Match, Worker};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Runs a future that awaits requests of `worker`, and makes progress for it meanwhile. All calls
/// of the worker belong into this future: the worker is armed after them, and its descriptor tells
/// nothing if another call follows.
async fn with_progress<F: Future>(worker: &Worker, future: F) -> io::Result<F::Output> {
    // tokio's other constructors are unsafe, since a descriptor may be closed while it is watched.
    // The worker's descriptor is borrowed for as long as tokio watches it.
    #[allow(deprecated, reason = "sound for a borrowed descriptor; see above")]
    let events = AsyncFd::with_interest(worker.event_descriptor(), Interest::READABLE)?;
    let mut future = pin!(future);
    poll_fn(|context| {
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            // A request that ends here wakes this task, and the future is polled again.
            while worker.progress() > 0 {}
            if worker.arm() {
                ready!(events.poll_read_ready(context))?.clear_ready();
                worker.disarm();
            }
        }
    })
    .await
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let server = Worker::new(Config::default())?;
    let address = server.address();
    let client = std::thread::spawn(move || -> Result<(), tagmatch::Error> {
        let worker = Worker::new(Config::default())?;
        let server = worker.connect(&address)?;
        for round in 0..3u64 {
            let answer = worker.recv(Match::tag(round).from(server), vec![0; 1 << 20]);
            worker.send(server, round, vec![42; 1 << 20]).wait()?;
            println!("client: {} bytes came back", answer.wait()?.data().len());
        }
        Ok(())
    });

    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(with_progress(&server, async {
        for round in 0..3u64 {
            let received = server.recv(Match::tag(round), vec![0; 1 << 20]).await?;
            let source = received.status.source;
            server.send(source, round, received.buffer).await?;
        }
        Ok::<_, tagmatch::Error>(())
    }))??;
    // The drop waits until the client has read the last message. So it comes before the join.
    drop(server);
    Ok(client.join().expect("the client panicked")?)
}
