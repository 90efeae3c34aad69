//! The output of rank 0: the facts, each row when it is done, and the JSON.

use tagmatch_results::columns::Column;
use tagmatch_results::{Config, Document, Matching, Row, Table};

use super::ranks::{Ranks, last_barrier};
use crate::args::{Common, Effort};
use crate::failure::Failure;
use crate::output::Output;
use crate::reasons::{list_fault, where_matched};
use crate::report::Report;
use crate::spec::HwTagsArg;
use crate::style;
use tagmatch_results::environment::{heading, lines};

/// The description of a test.
pub(super) struct TestDescription<'a> {
    pub(super) test: &'static str,
    pub(super) title: String,
    /// Facts that only this test has.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) sizes: &'a [u64],
    pub(super) effort: &'a Effort,
}

/// The table, and the other outputs of its rows.
pub(super) struct Rank0Output {
    table: Table,
    people: Output,
    json: Option<Output>,
    report: Report,
    document: Document,
    hw_tags: HwTagsArg,
}

impl Rank0Output {
    /// Prints the facts and the heading at rank 0; other ranks get `None`. If rank 0 can't print,
    /// it returns the failure, and all ranks end.
    pub(super) fn open(
        ranks: &Ranks,
        common: &Common,
        subject: &TestDescription<'_>,
        columns: &[Column],
    ) -> Result<Option<Self>, Failure> {
        let world = ranks.world();
        let opened = match world.rank() {
            0 => Self::begin(ranks, common, subject, columns).map(Some),
            _ => Ok(None),
        };
        let told = world.broadcast(0, vec![u8::from(opened.is_ok())]).wait();
        let failed = |error| Failure::Measurement(format!("before the first row: {error}"));
        match told.map_err(failed)?[..] {
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
    ) -> Result<Self, Failure> {
        let mut report = Report::open(common)?;
        let table = Table::new(columns);
        let (mut people, json) = report.outputs(common)?;
        let world = ranks.world();
        let launcher = ranks.launcher().to_string();
        let checked =
            if common.no_validate { "nothing (--no-validate)" } else { "each result once" };
        let mut facts = vec![
            ("device", format!("{}: {}", ranks.device.device, ranks.device.what)),
            ("ranks", format!("{}, started by a launcher that speaks {launcher}", world.size())),
            ("checked", checked.to_owned()),
        ];
        facts.extend(subject.facts.iter().cloned());
        let style = style::stdout();
        let block = heading(&subject.title, &facts) + &ranks.environment.facts_of_ranks() + "#\n";
        people.print(&style.block(&block))?;
        people.print(&(style.heading(table.heading().trim_end()) + "\n"))?;
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let config = Config {
            sizes: subject.sizes.to_vec(),
            iters: subject.effort.iters,
            duration_ms: subject.effort.time().map(ms),
            warmup: subject.effort.warmup,
            launcher: Some(launcher),
            by_messages: Some(ranks.by_messages),
            environment: ranks.environment.clone(),
            hw_tags: common.hw_tags.to_string(),
            ..Config::default()
        };
        let device = ranks.device.device.to_string();
        let document = Document::new(subject.test, device, config, !common.no_validate);
        report.begin(&document)?;
        Ok(Self { table, people, json, report, document, hw_tags: common.hw_tags })
    }

    pub(super) fn wants_histogram(&self) -> bool {
        self.report.wants_histogram()
    }

    /// Whether the output has lost its reader.
    pub(super) fn has_no_reader(&self) -> bool {
        self.people.has_no_reader() || self.report.has_no_reader()
    }

    /// Prints a line of progress to the stream.
    pub(super) fn progress(&mut self, line: &str) -> Result<(), Failure> {
        self.report.progress(line)
    }

    /// The user has interrupted the test.
    pub(super) fn interrupt(&mut self) {
        self.document.interrupted = true;
    }

    /// Prints a row. `matching` has the counts of all ranks.
    pub(super) fn add(&mut self, row: Row, matching: &Matching) -> Result<(), Failure> {
        let lines = self.table.row(&row) + &self.report.below(&row);
        self.people.print(&style::stdout().block(&lines))?;
        self.report.row(&self.document, &row, matching)?;
        self.document.add(row, matching);
        Ok(())
    }

    /// Ends the table and writes all other outputs.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let interrupted = self.document.interrupted;
        let matching = self.document.matching;
        let mut matched = where_matched(&matching, self.hw_tags);
        matched.extend(without_receives(&matching, self.document.config.by_messages == Some(true)));
        self.people.print(&style::stdout().block(&lines(&matched)))?;
        if interrupted {
            let rows = self.document.results.len();
            self.people.print(&format!("# interrupted {rows} rows measured\n"))?;
        }
        self.report.end(&self.document)?;
        if let Some(json) = &mut self.json {
            json.json(&self.document)?;
        }
        let reported = self.report.finish(&[self.document], &mut self.people);
        match list_fault(matching.list_faults) {
            Some(fault) => Err(Failure::Measurement(fault)),
            None if interrupted => Err(Failure::Interrupted),
            None => reported,
        }
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
