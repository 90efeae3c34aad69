//! The output of rank 0: the facts, each row when it is done, and the JSON.

use tagmatch_results::columns::Column;
use tagmatch_results::environment::heading;
use tagmatch_results::{Config, Document, Matching, Table};

use super::ranks::{Ranks, last_barrier};
use crate::args::{Common, Effort};
use crate::failure::Failure;
use crate::reasons::{fault_of, where_matched};
use crate::report::Report;

/// The description of a test.
pub(super) struct TestDescription<'a> {
    pub(super) test: &'static str,
    pub(super) title: String,
    /// Facts that only this test has.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) sizes: &'a [u64],
    pub(super) effort: &'a Effort,
}

/// Prints the facts and the heading at rank 0; other ranks get `None`. If rank 0 can't print, it
/// returns the failure, and all ranks end.
pub(super) fn open(
    ranks: &Ranks,
    common: &Common,
    subject: &TestDescription<'_>,
    columns: &[Column],
) -> Result<Option<Report>, Failure> {
    let world = ranks.world();
    let opened = match world.rank() {
        0 => begin(ranks, common, subject, columns).map(Some),
        _ => Ok(None),
    };
    let reply = world.broadcast(0, vec![u8::from(opened.is_ok())]).wait();
    let failed = |error| Failure::Measurement(format!("before the first row: {error}"));
    match reply.map_err(failed)?[..] {
        [1] => opened,
        _ => {
            last_barrier(&world);
            opened.and(Err(Failure::ReaderGone))
        }
    }
}

fn begin(
    ranks: &Ranks,
    common: &Common,
    subject: &TestDescription<'_>,
    columns: &[Column],
) -> Result<Report, Failure> {
    let mut report = Report::open(common)?;
    let launcher = ranks.launcher().to_string();
    let size = ranks.world().size();
    let checked = if common.no_validate { "nothing (--no-validate)" } else { "each result once" };
    let mut facts = vec![
        ("device", format!("{}: {}", ranks.device.device, ranks.device.what)),
        ("ranks", format!("{size}, started by a launcher that speaks {launcher}")),
        ("checked", checked.to_owned()),
    ];
    facts.extend(subject.facts.iter().cloned());
    let config = Config {
        sizes: subject.sizes.to_vec(),
        launcher: Some(launcher),
        by_messages: Some(ranks.by_messages),
        environment: ranks.environment.clone(),
        hw_tags: common.hw_tags.to_string(),
        ..subject.effort.config()
    };
    let device = ranks.device.device.to_string();
    let document = Document::new(subject.test, device, config, !common.no_validate);
    let facts = heading(&subject.title, &facts) + &ranks.environment.facts_of_ranks();
    report.begin(&facts, Table::new(columns), document, ranks.device.nic.as_deref())?;
    Ok(report)
}

/// Ends the table and writes all other outputs.
pub(super) fn finish(
    mut report: Report,
    ranks: &Ranks,
    common: &Common,
    interrupted: bool,
) -> Result<(), Failure> {
    let Document { results, matching, .. } = report.document();
    let mut matched = where_matched(matching, common.hw_tags);
    matched.extend(without_receives(matching, ranks.by_messages));
    let fault = fault_of(matching);
    let early = format!("interrupted {} rows measured", results.len());
    report.end(&matched, interrupted.then_some(early))?;
    let reported = report.finish(false);
    match fault {
        Some(fault) => Err(Failure::Measurement(fault)),
        None if interrupted => Err(Failure::Interrupted),
        None => reported,
    }
}

/// Why ranks have received nothing, if they haven't.
fn without_receives(matching: &Matching, by_messages: bool) -> Option<(&'static str, String)> {
    let Matching { hardware, posted, unexpected, by_device, .. } = matching;
    let has_received = hardware + posted + unexpected + by_device > 0;
    let why = "the ranks of a machine meet in memory that they share, without messages; \
               --by-messages measures with messages";
    (!has_received && !by_messages).then(|| ("no message", why.to_owned()))
}
