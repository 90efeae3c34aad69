//! Communicators between real processes over shared memory, and between threads. One program: what
//! its parts share is compiled once.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod deaths;
mod everything;
mod inter;
mod job;
mod jobs;
mod nic;

/// Plays this process's role, if it has one: the module that it is of, and what it is called there.
#[test]
fn role() {
    let Some(role) = job::role_of() else { return };
    let (module, role) = role.split_once(": ").unwrap();
    match module {
        "deaths" => deaths::play(role),
        "everything" => everything::play(role),
        "inter" => inter::play(role),
        "jobs" => jobs::play(role),
        other => panic!("no roles of {other}"),
    }
}
