//! All outputs of a measurement: the table and its facts, `--json`, rows in another form, charts,
//! and the comparison with a baseline.
//!
//! 1. [`Report::open`] checks before anything is measured that all of it can be written.
//! 2. `begin`, `row` and `end` are called as a test goes on, and print at once.
//! 3. [`Report::finish`] writes the outputs that need all results.

use tagmatch_results::environment::lines;
use tagmatch_results::show::one_line;
use tagmatch_results::{
    Comparison, Csv, Document, Histogram, Matching, Osu, Row, Samples, SavedRun, Style, Table,
    chart, stream,
};

use crate::args::{Common, report as args};
use crate::compare::saved_run;
use crate::failure::Failure;
use crate::nic::{self, NicWatch};
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
    /// The table and its facts, unless standard output is for a program.
    people: Output,
    style: Style,
    table: Table,
    /// The output of rows in another form than the table.
    rows: Output,
    json: Option<Output>,
    plot: Option<Output>,
    baseline: Option<(String, SavedRun)>,
    fail_if_slower: Option<f64>,
    table_is_seen: bool,
    wants_histogram: bool,
    documents: Vec<Document>,
    /// The NIC of the test that is being measured.
    nic: Option<NicWatch>,
}

impl Report {
    /// Checks the options, reads the baseline, creates the files.
    pub(crate) fn open(common: &Common) -> Result<Self, Failure> {
        let options: &args::ReportOptions = &common.report;
        let json_is_seen = to_stdout(common.json.as_ref());
        let replaced = options.replaces_table();
        if let Some(form) = replaced
            && json_is_seen
        {
            let wrong = format!("both --json and {form} go to -");
            return Err(Failure::usage(wrong, "a file for --json"));
        }
        if let Some(form @ ("--csv" | "--osu")) = replaced
            && options.histogram
            && common.json.is_none()
        {
            let right = "--json FILE with them, or --json-stream";
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
        let goes_on = common.json.is_some() || options.plot.is_some() || baseline.is_some();
        let stdout = || if goes_on { Output::stdout().optional() } else { Output::stdout() };
        let table_is_seen = replaced.is_none() && !json_is_seen;
        Ok(Self {
            form,
            people: if table_is_seen { stdout() } else { Output::nowhere() },
            style: style::stdout(),
            table: Table::default(),
            rows: stdout(),
            plot: options.plot.as_deref().map(plot::create).transpose()?,
            json: common.json.as_deref().map(|path| Output::create("--json", path)).transpose()?,
            baseline,
            fail_if_slower: options.fail_if_slower,
            table_is_seen,
            wants_histogram: options.histogram,
            documents: Vec::new(),
            nic: None,
        })
    }

    /// The histogram of a row, if the user wants one.
    pub(crate) fn histogram(&self, samples: &Samples) -> Option<Histogram> {
        self.wants_histogram.then(|| Histogram::new(samples.spread()))
    }

    /// The test that is being measured.
    pub(crate) fn document(&self) -> &Document {
        self.documents.last().expect("a test has begun")
    }

    /// Prints lines for people.
    pub(crate) fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.people.print(text)
    }

    fn say(&mut self, block: &str) -> Result<(), Failure> {
        self.people.print(&self.style.block(block))
    }

    /// Begins a test, whose facts stand above its table. `nic` is the NIC below its device.
    pub(crate) fn begin(
        &mut self,
        facts: &str,
        table: Table,
        document: Document,
        nic: Option<&str>,
    ) -> Result<(), Failure> {
        self.nic = nic.and_then(NicWatch::begin);
        self.say(&format!("{facts}#\n"))?;
        self.people.print(&(self.style.heading(table.heading().trim_end()) + "\n"))?;
        self.table = table;
        self.documents.push(document);
        let document = self.documents.last().expect("a test has begun");
        match &mut self.form {
            Form::Table => Ok(()),
            Form::Csv(csv) => self.rows.print(&csv.heading()),
            Form::Osu(osu) => self.rows.print(&osu.heading(document.test())),
            Form::Stream => self.rows.json(&stream::start(document)),
        }
    }

    /// Prints a row. `matching` has the counts of all sides.
    pub(crate) fn row(
        &mut self,
        row: Row,
        matching: &Matching,
        warning: Option<String>,
    ) -> Result<(), Failure> {
        let bars = row.histogram.as_ref().map_or_else(String::new, Histogram::bars);
        let warning = warning.map_or_else(String::new, |said| lines(&[("warning", said)]));
        self.say(&(self.table.row(&row) + &bars + &warning))?;
        let document = self.documents.last_mut().expect("a test has begun");
        match &mut self.form {
            Form::Table => Ok(()),
            Form::Csv(csv) => self.rows.print(&csv.row(document, &row)),
            Form::Osu(osu) => self.rows.print(&osu.row(document.test(), &row)),
            Form::Stream => self.rows.json(&stream::result(document, &row, matching)),
        }?;
        document.add(row, matching);
        Ok(())
    }

    /// Ends a test. `early` says that it ended before its time.
    pub(crate) fn end(
        &mut self,
        facts: &[(&str, String)],
        early: Option<String>,
    ) -> Result<(), Failure> {
        let nic_matches = self.nic.take().and_then(NicWatch::end);
        self.say(&lines(facts))?;
        let of_nic: Vec<_> = nic_matches.iter().map(nic::counted).collect();
        self.say(&lines(&of_nic))?;
        let document = self.documents.last_mut().expect("a test has begun");
        document.nic_matches = nic_matches;
        if let Some(early) = early {
            document.interrupted = true;
            self.people.print(&format!("# {early}\n"))?;
        }
        match &mut self.form {
            Form::Stream => self.rows.json(&stream::end(document)),
            _ => Ok(()),
        }
    }

    /// Whether the output of rows has lost its reader.
    pub(crate) fn has_no_reader(&self) -> bool {
        self.people.has_no_reader() || self.rows.has_no_reader()
    }

    /// Prints a line of progress to the stream.
    pub(crate) fn progress(&mut self, line: &str) -> Result<(), Failure> {
        self.rows.print(line)
    }

    /// Ends all tests: writes the JSON, an array if there may be several, then the charts, then the
    /// comparison, whose verdict comes last.
    pub(crate) fn finish(mut self, is_array: bool) -> Result<(), Failure> {
        match (&mut self.json, &self.documents[..]) {
            (Some(json), [document]) if !is_array => json.json(document)?,
            (Some(json), documents) => json.json(&documents)?,
            (None, _) => {}
        }
        let nothing = self.documents.iter().all(|document| document.results.is_empty());
        if nothing || (self.plot.is_none() && self.baseline.is_none()) {
            return Ok(());
        }
        let mut run = SavedRun::default();
        for document in &self.documents {
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
            self.people.print(&format!("\n{}", comparison.text(self.style)))?;
        } else {
            // Standard output has rows of another form, or JSON, for a program.
            let style = style::style_of(&std::io::stderr());
            Output::stderr().optional().print(&comparison.text(style))?;
        }
        let judged = comparison.judge().map_err(Failure::Measurement);
        if self.fail_if_slower.is_some() { judged } else { Ok(()) }
    }
}
