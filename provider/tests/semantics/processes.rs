//! Other processes: deaths by SIGKILL at any stage, and an exit right after the last send.
//!
//! Each test starts this program again with a role. The test `role` plays that role; without one it
//! does nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::client::{Call, Memory, Name, Node, World, at, call, payload, sys, within_limit};

const ROLE: &str = "TAGMATCH_TEST_ROLE";
const PARENT: &str = "TAGMATCH_TEST_PARENT";
/// Messages of a process that ends as soon as they are sent.
const LAST_WORDS: usize = 400;

fn length(number: usize) -> usize {
    if number % 100 == 99 { 200_000 } else { number * 31 % 6000 }
}

/// Another process, with an endpoint.
struct Other {
    process: Child,
    output: BufReader<ChildStdout>,
    name: Name,
}

impl Other {
    fn start(role: &str, parent: &Name) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut process = Command::new(program)
            .args(["--exact", "processes::role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(PARENT, hex(parent))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut other = Other { process, output, name: [0; 64] };
        other.name = of_hex(&other.hear("name"));
        other
    }

    /// The next line of the role's output that begins with this word. The test runner prints lines
    /// too.
    fn hear(&mut self, word: &str) -> String {
        let mark = format!("@{word} ");
        for line in self.output.by_ref().lines() {
            if let Some((_, rest)) = line.unwrap().split_once(&mark) {
                return rest.trim().into();
            }
        }
        panic!("the other process ended without saying {word}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn hex(name: &Name) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_hex(text: &str) -> Name {
    let byte = |at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    std::array::from_fn(byte)
}

fn say(word: &str, rest: &str) {
    println!("@{word} {rest}");
    std::io::stdout().flush().unwrap();
}

/// Plays a role, if there is one.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let node = Node::new();
    let parent = node.vector.add(of_hex(&std::env::var(PARENT).unwrap()));
    say("name", &hex(&node.name));
    match role.as_str() {
        "last words" => {
            for number in 0..LAST_WORDS {
                let from = Memory::of(&payload(number as u64, length(number)));
                node.endpoint.tsend(from, parent, number as u64, number).unwrap();
            }
            // As libfabric does at the end of a process. The program has closed nothing.
            call!(tagmatch_fi::fi_prov_ini(), cleanup());
            std::process::exit(0);
        }
        "victim" => {
            // It announces a long message, and from then on makes no progress.
            node.endpoint.tinject(b"first", parent, 1).unwrap();
            node.endpoint.tsend(Memory::of(&payload(1, 1 << 20)), parent, 2, 1).unwrap();
            node.endpoint.trecv(Memory::new(8), 9, 0, 2).unwrap();
            within_limit("the parent's message", || {
                let entry = node.queue.poll()?;
                (entry.context == 2).then_some(())
            });
            say("silent", "");
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn a_process_that_exits_right_after_its_last_send_loses_nothing() {
    let node = Node::new();
    let mut other = Other::start("last words", &node.name);
    for number in 0..LAST_WORDS {
        let room = Memory::new(length(number));
        node.endpoint.trecv(room, number as u64, 0, number).unwrap();
        let entry = within_limit("a message", || node.queue.poll());
        assert_eq!((entry.context, entry.failure, entry.length), (number, 0, length(number)));
        assert_eq!(room.bytes(), payload(number as u64, length(number)));
    }
    assert!(other.process.wait().unwrap().success());
    node.close();
}

#[test]
fn the_death_of_a_process_ends_what_depends_on_it_and_nothing_else() {
    let world = World::new(2);
    let endpoint = world.endpoint(0);
    let vector = world.node(0).vector;
    let mut other = Other::start("victim", &world.node(0).name);
    let victim = vector.add(other.name);
    endpoint.trecv_from(Memory::new(8), at(victim, 1), 1).unwrap();
    assert_eq!(world.success(0, 1).source, victim);
    endpoint.tinject(b"go on", victim, 9).unwrap();
    world.until("the silence", || Some(()));
    other.hear("silent");
    // Its long message is claimed; the other operations wait for it.
    let probe = Call { tag: 2, context: 10, ..Call::default() };
    endpoint.trecvmsg(probe, sys::FI_PEEK | sys::FI_CLAIM).unwrap();
    assert_eq!(world.success(0, 10).length, 1 << 20);
    let parts = [Memory::of(b"awaited")];
    let awaited = Call { parts: &parts, address: victim, tag: 5, context: 12, ..Call::default() };
    endpoint.tsend(Memory::of(&payload(2, 300_000)), victim, 5, 11).unwrap();
    endpoint.tsendmsg(awaited, sys::FI_DELIVERY_COMPLETE).unwrap();
    endpoint.trecv_from(Memory::new(8), at(victim, 6), 13).unwrap();
    // These don't depend on it.
    endpoint.trecv(Memory::new(8), 7, 0, 20).unwrap();
    endpoint.trecv_from(Memory::new(8), at(world.address(1), 7), 21).unwrap();
    world.expect_silence();
    other.process.kill().unwrap();
    other.process.wait().unwrap();
    let mut contexts = [11, 12, 13].map(|_| {
        let entry = world.entry(0);
        assert_eq!(entry.failure, sys::FI_ECONNRESET, "{entry:x?}");
        let words = world.queue(0).words(entry.reason);
        assert!(words.contains("ended"), "{words}");
        entry.context
    });
    contexts.sort_unstable();
    assert_eq!(contexts, [11, 12, 13]);
    // What was claimed can't be read any more; a new operation fails.
    let parts = [Memory::new(1 << 20)];
    endpoint.trecvmsg(Call { parts: &parts, ..probe }, sys::FI_CLAIM).unwrap();
    let entry = world.entry(0);
    assert!(entry.context == 10 && entry.failure != 0, "{entry:x?}");
    endpoint.tsend(parts[0], victim, 5, 14).unwrap();
    world.failure(0, 14, sys::FI_ECONNRESET);
    // The rest goes on.
    for context in [20, 21] {
        world.endpoint(1).tinject(b"alive", world.address(0), 7).unwrap();
        assert_eq!(world.success(0, context).source, world.address(1));
    }
    world.expect_silence();
}
