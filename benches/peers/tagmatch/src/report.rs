//! The judge of `ci/peers`: it reads the record and gives the next turn, tables, JSON and charts.
//!
//! `record` reads the record and says at which distance each sample counts; `schedule` chooses the
//! next turn; `rows` forms medians at one distance; `aims` judges them; `table`, `json` and
//! `charts` show them.

mod aims;
mod charts;
mod json;
mod record;
mod rows;
mod schedule;
mod table;

use std::fs;
use std::path::Path;

use crate::case::Outcome;
use record::Record;
use rows::Stat;
use schedule::Next;

/// Runs `next RECORD`, `table RECORD STAT`, `json RECORD STAT` or `plot RECORD STAT FOLDER`; `None`
/// if the arguments are others.
pub(crate) fn command(arguments: &[String]) -> Option<Outcome<()>> {
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let read = |path: &str| Record::parse(&fs::read_to_string(path)?);
    Some(match arguments[..] {
        ["next", path] => read(path).map(|record| match schedule::next(&record) {
            Next::Turn { program, group } => println!("{program} {group}"),
            Next::Wait => println!("wait"),
            Next::Done => println!("done"),
        }),
        ["table", path, stat] => read(path).and_then(|record| {
            print!("{}", table::text(&record, stat.parse()?));
            Ok(())
        }),
        ["json", path, stat] => read(path).and_then(|record| {
            println!("{:#}", json::document(&record, stat.parse()?));
            Ok(())
        }),
        ["plot", path, stat, folder] => read(path).and_then(|record| {
            for name in charts::write(&record, stat.parse()?, Path::new(folder))? {
                println!("{folder}/{name}");
            }
            Ok(())
        }),
        _ => return None,
    })
}

impl std::str::FromStr for Stat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "min" => Ok(Stat::Min),
            "p50" => Ok(Stat::P50),
            "p90" => Ok(Stat::P90),
            _ => Err(format!("{name} is no figure of a sample")),
        }
    }
}

#[cfg(test)]
mod tests;
