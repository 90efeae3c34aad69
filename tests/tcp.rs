//! The job's secret, as users of `tagmatch` meet it: workers on TCP find each other with the same
//! secret and not with another one.

use std::time::{Duration, Instant};

use tagmatch::tcp::TcpConfig;
use tagmatch::{Config, DeviceConfig, Failed, Match, Output, Request, Secret, Worker};

fn secret(text: &str) -> Option<Secret> {
    Some(Secret::from_bytes(text.as_bytes()).unwrap())
}

fn config(job: Option<Secret>, of_device: Option<Secret>) -> Config {
    let listen = vec![std::net::Ipv4Addr::LOCALHOST.into()];
    let connect_timeout = Duration::from_millis(500);
    let tcp =
        TcpConfig::default().secret(of_device).listen(listen).connect_timeout(connect_timeout);
    Config::default().device(DeviceConfig::Tcp(tcp)).secret(job).drain_timeout(Duration::ZERO)
}

/// Drives both workers until the request is over.
fn end<T: Output>(mut request: Request<T>, workers: [&Worker; 2]) -> Result<T, Failed> {
    let start = Instant::now();
    loop {
        for worker in workers {
            worker.progress();
        }
        if let Some(result) = request.test() {
            return result;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "hangs");
    }
}

#[test]
fn workers_with_one_secret_meet_and_others_stay_out() {
    // The secret of the job counts before the device's, which counts where the job has none.
    let listener =
        Worker::new(config(secret("the secret of the job"), secret("a secret of one device")));
    let listener = listener.unwrap();
    let friend = Worker::new(config(None, secret("the secret of the job"))).unwrap();
    let peer = friend.connect(&listener.address()).unwrap();
    let receive = listener.recv(Match::tag(7), vec![0; 8]);
    end(friend.send(peer, 7, b"hello".to_vec()), [&friend, &listener]).unwrap();
    assert_eq!(end(receive, [&friend, &listener]).unwrap().data(), b"hello");

    let stranger = Worker::new(config(secret("a secret of one device"), None)).unwrap();
    let peer = stranger.connect(&listener.address()).unwrap();
    let refused = end(stranger.send(peer, 7, b"hello".to_vec()), [&stranger, &listener]);
    assert!(refused.is_err());
    assert!(stranger.peer_fault(peer).unwrap().is_some());
    assert!(listener.probe(Match::any()).unwrap().is_none(), "a stranger's message");
}

#[test]
fn without_a_secret_the_error_says_where_one_may_come_from() {
    if ["TAGMATCH_SECRET", "TAGMATCH_SECRET_FILE"].iter().any(|name| std::env::var(name).is_ok()) {
        println!("SKIPPED: the environment has a secret");
        return;
    }
    let error = Worker::new(config(None, None)).map(drop).unwrap_err().to_string();
    for source in ["TAGMATCH_SECRET_FILE", "TAGMATCH_SECRET,", "secret"] {
        assert!(error.contains(source), "{error}");
    }
}

#[test]
fn settings_are_printed_without_the_secret() {
    let text = "visible to nobody at all";
    let printed = format!("{:?}", config(secret(text), secret(text)));
    assert!(printed.contains("Secret(..)") && !printed.contains("visible"), "{printed}");
    let bytes = format!("{:?}", text.as_bytes());
    assert!(!printed.contains(&bytes[1..20]), "{printed}");
}
