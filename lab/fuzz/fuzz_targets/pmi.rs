//! What the processes of a job can send to their launcher's PMI-1 server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tagmatch_launch::server::{Action, Server, Violation};
use tagmatch_launch::spawn::request::PmiRequest;
use tagmatch_launch::wire::PmiLine;

const SIZE: u32 = 3;
/// Requests that random bytes seldom are. What follows is the value of the last field.
const REQUESTS: [&str; 12] = [
    "cmd=init pmi_version=1 pmi_subversion=",
    "cmd=get_maxes x=",
    "cmd=put kvsname=space key=a value=",
    "cmd=put kvsname=space value=1 key=",
    "cmd=get kvsname=space key=",
    "cmd=barrier_in x=",
    "cmd=get_universe_size x=",
    "cmd=abort exitcode=",
    "cmd=finalize x=",
    "mcmd=spawn\nnprocs=2\nexecname=a\ntotspawns=1\nspawnssofar=1\nargcnt=1\narg1=",
    "mcmd=spawn\nnprocs=",
    "cmd=",
];

fuzz_target!(|data: &[u8]| {
    let mut server = Server::new(SIZE, "space", [("b".to_owned(), "1".to_owned())]);
    server.keep_news();
    for part in data.chunks(40) {
        let (first, rest) = part.split_at(1);
        let number = usize::from(first[0]);
        let rank = u32::try_from(number).unwrap_or(0) % (SIZE + 1);
        let request = REQUESTS[number / 4 % REQUESTS.len()].as_bytes();
        let end: &[u8] = if request.starts_with(b"mcmd") { b"\nendcmd\n" } else { b"\n" };
        for bytes in [[request, rest, end].concat(), rest.to_vec()] {
            let mut from = &bytes[..];
            while let Ok(request) = PmiRequest::read(&mut from) {
                let done = match request {
                    PmiRequest::Line(line) => server.handle_line(rank, &line),
                    PmiRequest::Spawn(spawn) => server.handle_spawn(rank, spawn),
                };
                match done {
                    Ok(Action::Reply(replies)) => check(&replies),
                    Ok(Action::Abort(_) | Action::Spawn(_)) => {}
                    Err(Violation::Wire(error)) => {
                        panic!("an answer that can't be written: {error}")
                    }
                    Err(_) => check(&server.ended(rank, true)),
                }
                for (key, value) in server.take_news() {
                    assert!(key.len() < 64 && value.len() < 960, "{key}={value}");
                }
            }
        }
    }
});

/// Each answer is a line that its receiver understands.
fn check(replies: &[tagmatch_launch::server::Reply]) {
    for reply in replies {
        assert!(reply.to < SIZE);
        let line = reply.line.strip_suffix('\n').expect("a newline at its end");
        PmiLine::parse(line.as_bytes()).expect("a line of PMI-1");
    }
}
