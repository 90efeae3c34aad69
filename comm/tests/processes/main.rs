//! Communicators between real processes, and between threads. The tests are one program, so that
//! their shared code is compiled once. `ci/test tests` runs them over shared memory, and `ci/test
//! tcp` with ranks in two network namespaces, with TCP between.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod crowded;
mod deaths;
mod everything;
mod inter;
mod job;
mod jobs;
mod logger;
mod nic;
mod segments;
mod settings;

/// Runs the code of this process's role, if it has one. A role is the name of a module, and the
/// name of the role in that module.
#[test]
fn role() {
    let Some(role) = job::role_of() else { return };
    let (module, role) = role.split_once(": ").unwrap();
    match module {
        "crowded" => crowded::play(role),
        "deaths" => deaths::play(role),
        "everything" => everything::play(role),
        "inter" => inter::play(role),
        "jobs" => jobs::play(role),
        "segments" => segments::play(role),
        "settings" => settings::play(role),
        other => panic!("no roles of {other}"),
    }
}
