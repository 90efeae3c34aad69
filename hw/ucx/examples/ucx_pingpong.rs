//! The UCX device alone, between two processes: half round trip and time per message, medians as
//! `ucx_perftest` gives them in its second column.
//!
//! `cargo run --release -p tagmatch-ucx --example ucx_pingpong -- posix,self 8 200000`, beside
//! `UCX_TLS=posix,self ucx_perftest -t tag_lat -s 8 -n 200000` (and `tag_bw` for the rate).

use std::process::Command;
use std::time::Instant;

use tagmatch_device::matching::{CompleteWhen, MatchingDevice, MatchingEvent, TagPattern, TagSend};
use tagmatch_device::{Address, Buffer, PeerId};
use tagmatch_ucx::{Ucx, UcxConfig};

/// Messages under way in the measurement of the rate, as in `ucx_perftest`.
const WINDOW: u64 = 32;

/// When each round began.
struct Times(Vec<Instant>);

impl Times {
    fn new(count: u64) -> Self {
        Times(Vec::with_capacity(usize::try_from(count).unwrap_or(0)))
    }

    fn note(&mut self) {
        self.0.push(Instant::now());
    }

    /// Microseconds.
    fn median(&self) -> f64 {
        let mut rounds: Vec<_> = self.0.windows(2).map(|pair| pair[1] - pair[0]).collect();
        rounds.sort_unstable();
        rounds.get(rounds.len() / 2).map_or(0.0, |median| median.as_secs_f64() * 1e6)
    }
}

struct End {
    ucx: Ucx,
    peer: PeerId,
    /// Buffers that came back.
    spare: Vec<Buffer>,
}

impl End {
    fn new(mut ucx: Ucx, address: Option<Address>) -> Self {
        let wanted = address.map(|address| ucx.connect(&address).expect("an address"));
        loop {
            match ucx.poll() {
                Some(MatchingEvent::PeerUp { peer })
                    if wanted.is_none_or(|wanted| wanted == peer) && peer != PeerId::ONESELF =>
                {
                    return End { ucx, peer, spare: Vec::new() };
                }
                Some(MatchingEvent::PeerDown { reason, .. }) => panic!("{reason:?}"),
                _ => {}
            }
        }
    }

    fn post(&mut self, size: usize) {
        let buffer = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(size));
        let pattern = TagPattern { tag: 1, mask: u64::MAX, source: Some(self.peer) };
        assert!(self.ucx.receive(pattern, buffer, 1).is_ok());
    }

    /// Sends; `true` if it is complete.
    fn send(&mut self, size: usize) -> bool {
        let buffer = self.spare.pop().unwrap_or_else(|| Buffer::zeroed(size));
        let complete_when = CompleteWhen::Reusable;
        let (peer, tag) = (self.peer, 1);
        let message = TagSend { peer, tag, immediate: None, buffer, complete_when, token: 2 };
        let sent = self.ucx.send(message).unwrap_or_else(|(_, unfit)| panic!("{unfit:?}"));
        let is_complete = sent.is_some();
        self.spare.extend(sent);
        is_complete
    }

    /// Polls once: how many receives and sends have ended.
    fn poll(&mut self) -> (u64, u64) {
        match self.ucx.poll() {
            Some(MatchingEvent::Received { buffer, result, .. }) => {
                assert!(result.is_ok(), "{result:?}");
                self.spare.push(buffer);
                (1, 0)
            }
            Some(MatchingEvent::Sent { buffer, .. }) => {
                self.spare.push(buffer);
                (0, 1)
            }
            _ => (0, 0),
        }
    }

    fn wait_for_message(&mut self) {
        while self.poll().0 == 0 {}
    }

    fn ping_pong(&mut self, size: usize, count: u64, is_first: bool) -> Times {
        let mut times = Times::new(count);
        for _ in 0..count {
            times.note();
            if is_first {
                self.send(size);
                self.post(size);
                self.wait_for_message();
            } else {
                self.post(size);
                self.wait_for_message();
                self.send(size);
            }
        }
        times
    }

    fn stream_out(&mut self, size: usize, count: u64) -> Times {
        let mut times = Times::new(count);
        let mut under_way = 0;
        for _ in 0..count {
            times.note();
            while under_way >= WINDOW {
                under_way -= self.poll().1;
            }
            under_way += u64::from(!self.send(size));
        }
        while under_way > 0 {
            under_way -= self.poll().1;
        }
        times
    }

    fn stream_in(&mut self, size: usize, count: u64) {
        for _ in 0..WINDOW.min(count) {
            self.post(size);
        }
        let mut posted = WINDOW.min(count);
        let mut received = 0;
        while received < count {
            let ended = self.poll().0;
            received += ended;
            if ended > 0 && posted < count {
                posted += 1;
                self.post(size);
            }
        }
    }
}

fn device(tls: &str) -> Ucx {
    let transports = Some(tls.to_owned());
    Ucx::new(UcxConfig { transports, ..UcxConfig::default() }).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let tls = arguments.next().unwrap_or_else(|| "posix,self".into());
    let number = |text: Option<String>, otherwise| match text {
        Some(text) => text.parse().expect("a number"),
        None => otherwise,
    };
    let size: usize = number(arguments.next(), 8).try_into().expect("a size");
    let count: u64 = number(arguments.next(), 200_000);
    if let Some(address) = arguments.next() {
        let mut end = End::new(device(&tls), Some(address.parse().expect("an address")));
        end.ping_pong(size, count / 10, false);
        end.ping_pong(size, count, false);
        end.stream_in(size, count);
        end.send(0);
        while end.ucx.poll().is_none() {}
        return;
    }
    let ucx = device(&tls);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([&tls, &size.to_string(), &count.to_string(), &ucx.address().to_string()])
        .spawn()
        .expect("another process");
    let mut end = End::new(ucx, None);
    end.ping_pong(size, count / 10, true);
    let half = end.ping_pong(size, count, true).median() / 2.0;
    let message = end.stream_out(size, count).median();
    end.post(0);
    end.wait_for_message();
    println!("{tls} {size} B: half round trip {half:.3} us, {message:.3} us a message");
    drop(end);
    child.wait().expect("its end");
}
