//! A table's worth of measurements: the block of facts, a row as each is done, and the JSON.

use std::time::Duration;

use serde::Serialize;

use super::client::{Limits, Measured};
use super::other::Other;
use super::plan::{Depth, Plan, Test};
use crate::args::{Common, Host};
use crate::control::message::Leg;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::json::{Document, Matching, Row};
use crate::link::{DEVICE, DEVICE_WHY};
use crate::output::Output;
use crate::progress::Progress;
use crate::report::Report;
use crate::style::Style;
use crate::table::{Column, Table, us};
use crate::trust::{self, Trust};
use crate::units::{show_3, show_count, show_size};

/// Large enough to be read out of the sender's memory, which shows how that is done here.
const FIRST_LOOK_BYTES: u64 = 64 << 10;

/// Everything that made the figures what they are.
#[derive(Serialize)]
pub(crate) struct Config {
    sizes: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iters: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warmup: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u64>,
    wildcard_recv: bool,
    other_side: String,
    large_messages: &'static str,
    #[serde(flatten)]
    trust: Trust,
}

/// Two sides that know each other.
pub(super) struct Series {
    other: Other,
    trust: Trust,
    large_messages: &'static str,
    /// The facts that hold for all tables stand above the first.
    introduced: bool,
}

impl Series {
    /// Finds the other side, pins this one, and takes a first look at what lies between them.
    pub(super) fn open(host: Option<&Host>, common: &Common) -> Result<Self, Failure> {
        let trust = Trust::gather(common.pin);
        let mut other = Other::find(host)?;
        if let Some(pin) = common.pin() {
            trust::pin(pin.here)?;
        }
        let time = Duration::from_secs(5);
        let mut leg = Plan::tour(Test::Lat, time, common).leg(FIRST_LOOK_BYTES, Depth::default());
        let limits = Limits { iters: 1, time, warmup_iters: 0, warmup_time: time };
        let look = other.run(&mut leg, limits, || ())?;
        let large_messages = look.large_messages;
        Ok(Self { other, trust, large_messages, introduced: false })
    }

    pub(super) fn large_messages(&self) -> &'static str {
        self.large_messages
    }

    /// Measures `legs` of `plan`, printing as it goes.
    pub(super) fn run(
        &mut self,
        plan: &Plan,
        legs: Vec<Leg>,
        people: &mut Output,
        report: &mut Report,
    ) -> Result<Document<Config>, Failure> {
        let (layout, style) = (Layout::of(plan), Style::stdout());
        people.print(&style.block(&self.block(plan)))?;
        people.print(&style.block("#\n"))?;
        people.print(&(style.heading(layout.table().heading().trim_end()) + "\n"))?;
        let validated = !plan.common.no_validate;
        let mut document =
            Document::new(plan.test.name(), DEVICE.into(), self.config(plan), validated);
        report.begin(&document)?;
        let streams = plan.common.report.json_stream;
        let (limits, mut progress) = (plan.limits(), Progress::new(legs.len(), streams));
        let mut matched = Matching::default();
        for mut leg in legs {
            let what = format!("{} {}", plan.test.name(), show_size(leg.size));
            progress.begin(what.clone());
            let measured = self.other.run(&mut leg, limits, || progress.at(|| what.clone()))?;
            progress.end();
            let mut row = row(&leg, &measured);
            if report.wants_histogram() && row.latency_ns.is_some() {
                row.histogram = Some(Histogram::new(measured.samples.spread()));
            }
            let line = layout.table().row(&layout.cells(&leg, &row, &measured));
            let below = style.block(&report.below(&row));
            progress.above(|| people.print(&(line + &below)))?;
            report.row(&document, &row, &measured.matching)?;
            matched.add(&measured.matching);
            document.add(row, &measured.matching);
        }
        drop(progress);
        people.print(&style.block(&format!("# matched     {}\n", where_matched(&matched))))?;
        report.end(&document)?;
        Ok(document)
    }

    fn config(&self, plan: &Plan) -> Config {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Config {
            sizes: plan.sizes.clone(),
            iters: plan.iters,
            duration_ms: plan.duration().map(ms),
            warmup: plan.warmup,
            window: plan.window,
            wildcard_recv: plan.depths.iter().any(|depth| depth.wildcard_recv),
            other_side: self.other.what.clone(),
            large_messages: self.large_messages,
            trust: self.trust.clone(),
        }
    }

    fn block(&mut self, plan: &Plan) -> String {
        let title = match plan.test {
            Test::Lat => "latency: half the round trip in us, over all samples",
            Test::Bw => "bandwidth: one way; 1 MB/s is 10^6 bytes/s",
            Test::Rate => "message rate: one way",
        };
        let checked = match plan.common.no_validate {
            false => "every byte, outside the measured interval",
            true => "nothing (--no-validate)",
        };
        let mut facts = vec![("effort", plan.effort()), ("checked", checked.into())];
        if let [depth] = plan.depths[..]
            && depth != Depth::default()
        {
            facts.push(("matching", describe(depth)));
        }
        if std::mem::replace(&mut self.introduced, true) {
            return trust::heading(title, &facts);
        }
        let device = [
            ("device", format!("{DEVICE}: {DEVICE_WHY}")),
            ("large", self.large_messages.to_owned()),
            ("other side", self.other.what.clone()),
        ];
        facts.splice(0..0, device);
        trust::heading(title, &facts) + &self.trust.facts()
    }
}

fn describe(depth: Depth) -> String {
    format!(
        "{} receives posted ({} % any source), {} messages unexpected on both sides; measured \
         receives {}",
        show_count(depth.posted_depth),
        depth.wildcard_percent,
        show_count(depth.unexpected_depth),
        if depth.wildcard_recv { "from any source" } else { "name their source" },
    )
}

fn row(leg: &Leg, measured: &Measured) -> Row {
    let latency_ns = measured.samples.halved();
    // A round trip is two messages, one after the other.
    let ways = if latency_ns.is_some() { 2.0 } else { 1.0 };
    let seconds = measured.took.as_secs_f64();
    let messages_per_s = (seconds > 0.0).then(|| ways * measured.iters as f64 / seconds);
    #[expect(clippy::cast_possible_truncation, reason = "rates are far below 2^64")]
    let whole = |value: f64| value.round() as u64;
    Row {
        size: leg.size,
        posted_depth: leg.posted_depth,
        unexpected_depth: leg.unexpected_depth,
        wildcard_percent: leg.wildcard_percent,
        iters: measured.iters,
        samples: measured.samples.count(),
        latency_ns,
        bandwidth_bytes_per_s: messages_per_s.map(|rate| whole(rate * leg.size as f64)),
        messages_per_s: messages_per_s.map(whole),
        blocks: measured.blocks.clone(),
        histogram: None,
    }
}

fn where_matched(matching: &Matching) -> String {
    let Matching { hardware, posted, unexpected, not_offloaded: why } = *matching;
    let mut said = format!(
        "{} receives: {} in hardware, {} posted, {} unexpected",
        show_count(hardware + posted + unexpected),
        show_count(hardware),
        show_count(posted),
        show_count(unexpected),
    );
    let reasons = [
        ("too small", why.too_small),
        ("list full", why.list_full),
        ("order", why.order),
        ("source", why.source),
        ("memory", why.memory),
        ("phase", why.phase),
        ("no NIC that matches", why.off),
    ];
    let reasons = reasons.iter().filter(|(_, count)| *count > 0);
    let reasons: Vec<_> = reasons.map(|(why, n)| format!("{why} {}", show_count(*n))).collect();
    if !reasons.is_empty() {
        said += &format!("; not in hardware because: {}", reasons.join(", "));
    }
    said
}

/// Which columns a table has.
#[derive(Clone, Copy)]
enum Layout {
    Latency,
    Depth,
    Bandwidth,
    Rate,
}

impl Layout {
    fn of(plan: &Plan) -> Self {
        match plan.test {
            Test::Lat if plan.depths.len() > 1 => Self::Depth,
            Test::Lat => Self::Latency,
            Test::Bw => Self::Bandwidth,
            Test::Rate => Self::Rate,
        }
    }

    fn table(self) -> Table {
        const US: usize = 9;
        Table(match self {
            Self::Latency => &[
                Column("size", 8),
                Column("min", US),
                Column("p50", US),
                Column("p90", US),
                Column("p99", US),
                Column("p99.9", US),
                Column("max", US),
                Column("samples", 11),
            ],
            Self::Depth => &[
                Column("posted", 7),
                Column("unexpected", 10),
                Column("any source %", 5),
                Column("min", US),
                Column("p50", US),
                Column("p90", US),
                Column("p99", US),
                Column("max", US),
                Column("samples", 11),
            ],
            Self::Bandwidth => &[
                Column("size", 8),
                Column("window", 6),
                Column("MB/s", 9),
                Column("messages/s", 12),
                Column("messages", 12),
            ],
            Self::Rate => &[
                Column("size", 8),
                Column("window", 6),
                Column("messages/s", 12),
                Column("ns/message", 10),
                Column("messages", 12),
            ],
        })
    }

    fn cells(self, leg: &Leg, row: &Row, measured: &Measured) -> Vec<String> {
        let count = show_count(row.iters);
        let rate = row.messages_per_s.map_or("-".into(), show_count);
        let ladder = row.latency_ns.map_or([None; 6], |latency| latency.ladder(row.samples));
        let [min, p50, p90, p99, p999, max] = ladder.map(us);
        let (size, window) = (show_size(leg.size), leg.window.to_string());
        match self {
            Self::Latency => vec![size, min, p50, p90, p99, p999, max, count],
            Self::Depth => {
                let depth = [leg.posted_depth, leg.unexpected_depth, leg.wildcard_percent.into()];
                let depth = depth.map(|number| number.to_string());
                depth.into_iter().chain([min, p50, p90, p99, max, count]).collect()
            }
            Self::Bandwidth => {
                let bandwidth = row.bandwidth_bytes_per_s.map(|rate| show_3(rate as f64 / 1e6));
                vec![size, window, bandwidth.unwrap_or_else(|| "-".into()), rate, count]
            }
            Self::Rate => {
                let ns = measured.took.as_secs_f64() * 1e9 / measured.iters.max(1) as f64;
                vec![size, window, rate, show_3(ns), count]
            }
        }
    }
}
