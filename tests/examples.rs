//! Runs the examples, each as its program does. An argument chooses those whose names contain it.
//!
//! This is a program without a test harness, since `ping_pong` starts the program that it is in a
//! second time, with an address as the argument.

use std::env;

use tagmatch::Address;

#[path = "../examples/await_with_async_fd.rs"]
mod await_with_async_fd;
#[path = "../examples/await_with_progress_thread.rs"]
mod await_with_progress_thread;
#[path = "../examples/hash_table.rs"]
mod hash_table;
#[path = "../examples/ping_pong.rs"]
mod ping_pong;
#[path = "../examples/progress_loop.rs"]
mod progress_loop;
#[path = "../examples/server_with_threads.rs"]
mod server_with_threads;

fn main() {
    let argument = env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    if argument.as_ref().is_some_and(|argument| argument.parse::<Address>().is_ok()) {
        return ping_pong::main().unwrap();
    }
    let examples: [(&str, fn()); 6] = [
        ("await_with_async_fd", || await_with_async_fd::main().unwrap()),
        ("await_with_progress_thread", || await_with_progress_thread::main().unwrap()),
        ("hash_table", || hash_table::main().unwrap()),
        ("ping_pong", || ping_pong::main().unwrap()),
        ("progress_loop", || progress_loop::main().unwrap()),
        ("server_with_threads", || server_with_threads::main().unwrap()),
    ];
    for (name, run) in examples {
        if argument.as_ref().is_none_or(|part| name.contains(part.as_str())) {
            println!("example {name}");
            run();
        }
    }
}
