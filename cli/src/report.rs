//! Outputs beside the table and `--json`: rows in another form, bars below them, charts, and the
//! comparison with a baseline.
//!
//! 1. [`Report::open`] checks before anything is measured that all of it can be written.
//! 2. `begin`, `row` and `end` are called as a test goes on, and print at once.
//! 3. [`Report::finish`] writes the outputs that need all results.

use tagmatch_results::show::one_line;
use tagmatch_results::{
    Comparison, Csv, Document, Histogram, Matching, Osu, Row, SavedRun, chart, stream,
};

use crate::args::{Common, report as args};
use crate::compare::saved_run;
use crate::failure::Failure;
use crate::output::{Output, to_stdout};
use crate::{files, plot, style};

/// The form in which rows are printed.
enum Form {
    Table,
    Csv(Csv),
    Osu(Osu),
    Stream,
}

/// All outputs that were asked for.
pub(crate) struct Report {
    form: Form,
    /// The output of rows in another form than the table.
    out: Output,
    histogram: bool,
    plot: Option<Output>,
    baseline: Option<(String, SavedRun)>,
    fail_if_slower: Option<f64>,
    table_is_seen: bool,
}

impl Report {
    /// Checks the options, reads the baseline, creates the chart's file.
    pub(crate) fn open(common: &Common) -> Result<Self, Failure> {
        let options: &args::ReportOptions = &common.report;
        let replaced = options.replaces_table();
        if let Some(form) = replaced
            && to_stdout(common.json.as_ref())
        {
            let wrong = format!("both --json and {form} go to -");
            return Err(Failure::usage(wrong, "a file for --json"));
        }
        if let Some(form @ ("--csv" | "--osu")) = replaced
            && options.histogram
            && common.json.is_none()
        {
            let right = "--json FILE with them, or --json-stream,";
            return Err(Failure::usage(format!("{form} has no place for --histogram"), right));
        }
        let outputs = [("--json", common.json.as_ref()), ("--plot", options.plot.as_ref())];
        files::check_distinct(&[], &outputs)?;
        let form = match replaced {
            Some("--csv") => Form::Csv(Csv::new(common.hw_tags.to_string())),
            Some("--osu") => Form::Osu(Osu::default()),
            Some(_) => Form::Stream,
            None => Form::Table,
        };
        let baseline = match &options.baseline {
            Some(path) => Some((one_line(path.display()), saved_run("--baseline", path)?)),
            None => None,
        };
        let out = Output::stdout();
        let goes_on = common.json.is_some() || options.plot.is_some() || baseline.is_some();
        Ok(Self {
            form,
            out: if goes_on { out.optional() } else { out },
            histogram: options.histogram,
            plot: options.plot.as_deref().map(plot::create).transpose()?,
            baseline,
            fail_if_slower: options.fail_if_slower,
            table_is_seen: replaced.is_none() && !to_stdout(common.json.as_ref()),
        })
    }

    /// The output for people, and the one for JSON if it was asked for.
    pub(crate) fn outputs(&self, common: &Common) -> Result<(Output, Option<Output>), Failure> {
        let json = common.json.as_deref().map(|path| Output::create("--json", path)).transpose()?;
        let replaced = self.replaces_table() || to_stdout(common.json.as_ref());
        let people = if replaced { Output::nowhere() } else { Output::stdout() };
        let goes_on = json.is_some() || self.plot.is_some() || self.baseline.is_some();
        Ok((if goes_on { people.optional() } else { people }, json))
    }

    /// Whether rows are printed in another form than the table.
    fn replaces_table(&self) -> bool {
        !matches!(self.form, Form::Table)
    }

    /// Whether rows should have a histogram.
    pub(crate) fn wants_histogram(&self) -> bool {
        self.histogram
    }

    /// Begins a test.
    pub(crate) fn begin(&mut self, document: &Document) -> Result<(), Failure> {
        match &mut self.form {
            Form::Table => Ok(()),
            Form::Csv(csv) => self.out.print(&csv.heading()),
            Form::Osu(osu) => self.out.print(&osu.heading(document.test())),
            Form::Stream => self.out.json(&stream::start(document)),
        }
    }

    /// Prints a result.
    pub(crate) fn row(
        &mut self,
        document: &Document,
        row: &Row,
        matching: &Matching,
    ) -> Result<(), Failure> {
        match &mut self.form {
            Form::Table => Ok(()),
            Form::Csv(csv) => self.out.print(&csv.row(document, row)),
            Form::Osu(osu) => self.out.print(&osu.row(document.test(), row)),
            Form::Stream => self.out.json(&stream::result(document, row, matching)),
        }
    }

    /// The lines below a row of the table.
    pub(crate) fn below(&self, row: &Row) -> String {
        row.histogram.as_ref().map_or_else(String::new, Histogram::bars)
    }

    /// Ends a test.
    pub(crate) fn end(&mut self, document: &Document) -> Result<(), Failure> {
        match &mut self.form {
            Form::Stream => self.out.json(&stream::end(document)),
            _ => Ok(()),
        }
    }

    /// Whether the output of rows has lost its reader.
    pub(crate) fn has_no_reader(&self) -> bool {
        self.replaces_table() && self.out.has_no_reader()
    }

    /// Prints a line of progress to the stream.
    pub(crate) fn progress(&mut self, line: &str) -> Result<(), Failure> {
        self.out.print(line)
    }

    /// Ends all tests: writes the charts, then the comparison, whose verdict comes last.
    pub(crate) fn finish(
        mut self,
        documents: &[Document],
        people: &mut Output,
    ) -> Result<(), Failure> {
        let nothing = documents.iter().all(|document| document.results.is_empty());
        if nothing || (self.plot.is_none() && self.baseline.is_none()) {
            return Ok(());
        }
        let mut run = SavedRun::default();
        for document in documents {
            run.add(document).map_err(Failure::Measurement)?;
        }
        if let Some(out) = &mut self.plot {
            out.print(&chart::of_run(&run, &plot::command_line()))?;
        }
        let Some((name, baseline)) = &self.baseline else {
            return Ok(());
        };
        let names = [name.clone(), "this run".into()];
        let limit = self.fail_if_slower.unwrap_or(0.0);
        let comparison = Comparison::new(names, baseline, &run, limit).map_err(Failure::Usage)?;
        if self.table_is_seen {
            people.print(&format!("\n{}", comparison.text(style::stdout())))?;
        } else {
            // Standard output has rows of another form, or JSON, for a program.
            Output::stderr()
                .optional()
                .print(&comparison.text(style::style_of(&std::io::stderr())))?;
        }
        if self.fail_if_slower.is_some() {
            comparison.judge().map_err(Failure::Measurement)
        } else {
            Ok(())
        }
    }
}
