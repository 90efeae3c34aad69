//! Requests awaited by tasks of tokio, on several threads. A [`ProgressThread`] makes progress for
//! each worker: without it, nothing would happen between two polls of a request, and nothing would
//! cause the second poll.
//!
//! `cargo run --example await_with_progress_thread`
//!
//! [`ProgressThread`]: tagmatch::ProgressThread

use std::error::Error;

use tagmatch::{Config, Match, SharedWorker};

const GREETING: u64 = 1;
const ANSWER: u64 = 2;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    runtime.block_on(exchange())
}

async fn exchange() -> Result<(), Box<dyn Error>> {
    let server = SharedWorker::new(Config::default())?;
    let client = SharedWorker::new(Config::default())?;
    let address = server.address();
    // The threads live as long as the workers are used. A worker that is dropped makes progress by
    // itself.
    let _progress = (server.progress_thread()?, client.progress_thread()?);

    let serving = tokio::spawn(async move {
        let greeting = server.recv(Match::tag(GREETING), vec![0; 64]).await?;
        println!("server: {}", String::from_utf8_lossy(greeting.data()));
        server.send(greeting.status.source, ANSWER, b"hello yourself".to_vec()).await?;
        Ok::<_, tagmatch::Error>(())
    });
    let peer = client.connect(&address)?;
    let answer = client.recv(Match::tag(ANSWER).from(peer), vec![0; 64]);
    client.send(peer, GREETING, b"hello".to_vec()).await?;
    println!("client: {}", String::from_utf8_lossy(answer.await?.data()));
    Ok(serving.await??)
}
