//! Each time of the product that ends a wait is named with its reason, or goes through
//! `hw/os/src/safety.rs`: a safety timer that tests don't turn off would hide lost wake-ups.

use super::{assert_none, code, is_name, is_rust};

/// One file a line, with names of constants and fields, a colon, and what the times are for.
const REASONS: &str = "tests/timers.txt";
/// The folders of what may sleep for a program.
const ROOMS: [&str; 7] =
    ["src/", "hw/", "emu/verbs/", "fallback/", "comm/", "launch/", "provider/"];

/// The name of the constant or field to which a line gives a time that it spells out. `None`: the
/// line has no such time. Variables don't count: they bound settings, and wait for nothing.
fn named_time(line: &str) -> Option<&str> {
    let spelled = |unit: &str| {
        let after = line.split_once(unit).map(|(_, after)| after);
        after.is_some_and(|after| after.starts_with(|first: char| first.is_ascii_digit()))
    };
    let units = ["secs", "millis", "micros"].map(|unit| format!("Duration::from_{unit}("));
    if !units.iter().any(|unit| spelled(unit)) || line.contains("safety::") {
        return None;
    }
    let (name, _) = line.split_once(':')?;
    let name = name.trim_end().rsplit(' ').next()?;
    let is_variable = line.trim_start().starts_with("let ");
    (!is_variable && !name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// The times of a file of the product, without its tests.
fn times_of<'a>(path: &str, text: &'a str) -> Vec<&'a str> {
    let is_product = ROOMS.iter().any(|room| path.starts_with(room)) && path.contains("src/");
    let is_test = path.contains("tests/") || path.ends_with("tests.rs");
    if !is_rust(path) || !is_product || is_test || path.ends_with("fuzzing.rs") {
        return Vec::new();
    }
    let is_code =
        |line: &&str| !line.starts_with("#[cfg(test") && !line.starts_with("#[cfg(all(test");
    let lines = text.lines().take_while(is_code);
    lines.filter(|line| !code(line).trim().is_empty()).filter_map(named_time).collect()
}

fn violations(files: &[(String, String)], reasons: &str) -> Vec<String> {
    let mut listed: Vec<(String, &str)> = Vec::new();
    let mut found = Vec::new();
    for line in reasons.lines() {
        match line.split_once(": ") {
            Some((names, reason)) if !reason.is_empty() => {
                let mut names = names.split(' ');
                let path = names.next().unwrap_or_default();
                listed.extend(names.map(|name| (path.to_owned(), name)));
            }
            _ => found.push(format!("{REASONS}: no reason in `{line}`")),
        }
    }
    for (path, text) in files {
        let times = times_of(path, text);
        let is_listed = |name: &&str| listed.iter().any(|(of, it)| of == path && it == name);
        found.extend(times.iter().filter(|name| !is_listed(name)).map(|name| {
            format!(
                "{path}: the time `{name}` needs a reason in {REASONS}, or \
                 tagmatch_os::safety::period"
            )
        }));
        let gone = listed.iter().filter(|(of, name)| of == path && !times.contains(name));
        found.extend(gone.map(|(_, name)| format!("{REASONS}: {path} has no time `{name}`")));
    }
    let is_gone = |path: &String| !files.iter().any(|(file, _)| file == path);
    let gone = listed.iter().filter(|(path, _)| is_gone(path));
    found.extend(gone.map(|(path, _)| format!("{REASONS}: there is no file {path}")));
    found
}

#[test]
fn every_time_that_ends_a_wait_has_a_reason() {
    let files = super::files();
    let reasons = files.iter().find(|(path, _)| path == REASONS).expect("the list of times");
    assert_none(&violations(&files, &reasons.1));
}

#[test]
fn a_time_without_a_reason_and_a_reason_without_a_time_are_found() {
    let find = |text: &str, reasons: &str| {
        violations(&[("src/a.rs".to_owned(), text.to_owned())], reasons).len()
    };
    let timer = "const LOOK: Duration = Duration::from_millis(5);";
    assert_eq!(find(timer, "src/a.rs LOOK: a peer that does not answer"), 0);
    assert_eq!(find(timer, ""), 1);
    assert_eq!(find(timer, "src/a.rs LOOK"), 2);
    assert_eq!(find("pub wait: Duration = Duration::from_secs(1),", ""), 1);
    assert_eq!(find("", "src/a.rs LOOK: a peer"), 1);
    assert_eq!(find("", "src/b.rs LOOK: a peer"), 1);
    assert_eq!(find("let longest = Duration::from_secs(3600);", ""), 0);
    assert_eq!(find("pub wait: Duration = safety::period(Duration::from_secs(1)),", ""), 0);
    assert_eq!(find("#[cfg(test)]\nconst LOOK: Duration = Duration::from_secs(1);", ""), 0);
}
