//! The examples, run as tests.

#[path = "../examples/await_with_async_fd.rs"]
mod await_with_async_fd;
#[path = "../examples/await_with_progress_thread.rs"]
mod await_with_progress_thread;

#[test]
fn await_with_a_progress_thread() {
    await_with_progress_thread::main().unwrap();
}

#[test]
fn await_with_an_async_fd() {
    await_with_async_fd::main().unwrap();
}
