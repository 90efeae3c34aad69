//! `tagmatch-planted check`: each slip has its place. `tree`: makes the copy of the source with all
//! slips, and prints its folder. `plant [NAME...]`: runs the tests that must notice the slips.

use std::env;
use std::process::ExitCode;

use tagmatch_planted::{tree, trial};

fn main() -> ExitCode {
    let source = tree::source();
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["check"] => tree::check(&source)
            .map(|(slips, _)| format!("lab/planted: {} slips have their places", slips.len())),
        ["tree"] => tree::make(&source).map(|(_, tree)| tree.display().to_string()),
        ["plant", ref names @ ..] => {
            let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
            let have_passed = env::var_os("TESTED").is_some_and(|value| !value.is_empty());
            let done = trial::run(&source, &names, have_passed).map(|count| {
                format!("lab/planted: {count} slips, each noticed by the tests that it names")
            });
            done.map_err(|errors| errors.join("\n"))
        }
        _ => Err("usage: tagmatch-planted check | tree | plant [NAME...]".into()),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(errors) => {
            eprintln!("lab/planted: {errors}");
            ExitCode::FAILURE
        }
    }
}
