//! Runs the cases of a plan: prints the facts, then each row when it is done, and gives the JSON.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use tagmatch_results::environment::heading;
use tagmatch_results::show::{show_count, show_size};
use tagmatch_results::{Config, Distance, Document, Environment, depth_verdict};

use super::client::{self, Measured};
use super::interrupt::Interrupt;
use super::job::Placement;
use super::peer_process::PeerProcess;
use super::plan::{Plan, QueueDepths, Test};
use super::row::row;
use crate::args::Common;
use crate::device::FoundDevice;
use crate::environment;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::reasons::{fault_of, nic, where_matched};
use crate::report::Report;
use crate::spec::{Case, Completions, DeviceArg, Host, HwTagsArg, Limits, Pin};
use crate::units::name;
use crate::{cpus, distance, secret};

/// Large enough for a direct read of the sender's memory. The first message shows whether that
/// works here.
const FIRST_LOOK_BYTES: u64 = 64 << 10;

/// Receives that are posted beside those of a depth: the measured ones, and the device's own.
const APART: usize = 64;

/// The time between two checks whether the output still has a reader.
const LOOK_TIME: Duration = Duration::from_millis(100);

/// Where the other side is.
#[derive(Clone, Copy)]
pub(super) enum PeerLocation<'a> {
    /// A second process that is started here.
    SecondProcess,
    Serve(&'a Host),
    /// The other rank of a launched job, at the end of this connection.
    OtherRank(&'a TcpStream, &'a Placement),
    /// There is no other side: the process sends to itself.
    Oneself,
}

/// Two sides that have greeted each other, or a process that sends to itself.
pub(super) struct TestRunner {
    other: Option<PeerProcess>,
    device: FoundDevice,
    /// The device of the other side, if it has another name there.
    device_there: Option<DeviceArg>,
    environment: Environment,
    pub(super) large_messages: String,
    /// The CPUs of both sides, if both are on this machine and kept on one each.
    cpus: Option<Pin>,
    /// Whether the facts that hold for all tables were printed above the first.
    introduced: bool,
    interrupt: Interrupt,
    /// The failure that ended the test early, after some rows were measured.
    failed: Option<Failure>,
}

impl TestRunner {
    /// Finds the other side, pins this process, and exchanges a first message.
    pub(super) fn open(
        place: PeerLocation<'_>,
        common: &Common,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let wanted = common.device();
        let refused = |why| Failure::Usage(format!("--device {wanted}: {why}"));
        let device = FoundDevice::look(&wanted, common.hw_tags).map_err(refused)?;
        let needs_secret = matches!(device.device, DeviceArg::Tcp { .. });
        let has_secret = match place {
            // Both processes are this command's, so it can make a secret for them.
            PeerLocation::SecondProcess if needs_secret => secret::known_or_new().map(drop),
            _ => secret::check(&device.device),
        };
        has_secret.map_err(refused)?;
        let environment = match place {
            PeerLocation::Oneself => environment::gather(1, common.pin),
            PeerLocation::SecondProcess | PeerLocation::Serve(_) => {
                environment::gather(2, common.pin)
            }
            PeerLocation::OtherRank(_, places) => {
                environment::gather_pair(places.processes(), places.cores(), common.pin)
            }
        };
        let is_here = match place {
            PeerLocation::SecondProcess => true,
            PeerLocation::OtherRank(_, places) => places.is_one_machine(),
            PeerLocation::Serve(_) | PeerLocation::Oneself => false,
        };
        let other = match place {
            PeerLocation::SecondProcess => Some(PeerProcess::find(None, &device.device)),
            PeerLocation::Serve(host) => Some(PeerProcess::find(Some(host), &device.device)),
            PeerLocation::OtherRank(stream, _) => {
                Some(PeerProcess::of_launched_job(stream, &device.device))
            }
            PeerLocation::Oneself => None,
        };
        // If ^C hits the second process before it ignores the signal, that is an interruption, not
        // a failure.
        let other = other.transpose().map_err(|failure| {
            if interrupt.is_raised() { Failure::Interrupted } else { failure }
        })?;
        if let Some(pin) = common.pin() {
            cpus::pin(pin.here)?;
        }
        let mut series = Self {
            other,
            device,
            device_there: None,
            environment,
            large_messages: String::new(),
            cpus: common.pin().filter(|_| is_here),
            introduced: false,
            interrupt,
            failed: None,
        };
        let time = Duration::from_secs(5);
        let plan = Plan::brief(Test::Lat, time, common);
        let mut case = plan.case(FIRST_LOOK_BYTES, QueueDepths::default(), None);
        let limits = Limits { iters: 1, time, warmup_iters: 0, warmup_time: time };
        let first = series.measure(&mut case, limits, || true)?;
        series.large_messages = first.large_messages;
        let distance = series.distance();
        series.environment.note_distance(distance);
        series.device_there = first.device_there.filter(|there| *there != series.device.device);
        Ok(series)
    }

    /// Whether the user has interrupted the test, or it failed.
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some() || self.interrupt.is_raised()
    }

    /// The outcome: success, a failure, or an interruption.
    pub(super) fn outcome(self) -> Result<(), Failure> {
        match self.failed {
            Some(failure) => Err(failure),
            None if self.interrupt.is_raised() => Err(Failure::Interrupted),
            None => Ok(()),
        }
    }

    /// The distance of both sides' CPUs. The other side sleeps between two measurements, so its CPU
    /// is free.
    fn distance(&self) -> Option<Distance> {
        self.cpus.and_then(distance::probe)
    }

    fn measure(
        &mut self,
        case: &mut Case,
        limits: Limits,
        tick: impl FnMut() -> bool,
    ) -> Result<Measured, Failure> {
        match &mut self.other {
            Some(other) => other.run(&self.device.device, case, limits, tick),
            None => client::run_alone(case, limits, tick),
        }
    }

    /// Measures the cases of `plan` and prints the rows. If the user interrupts it, it ends early
    /// with the rows so far.
    pub(super) fn run(&mut self, plan: &Plan, report: &mut Report) -> Result<(), Failure> {
        if let (Some(other), Some(_)) = (&self.other, plan.interval_ps) {
            other.check_clock()?;
        }
        let validated = !plan.common.no_validate && !plan.single_buffer;
        let device = self.device.device.to_string();
        let document = Document::new(plan.name(), device, self.config(plan), validated);
        report.begin(&self.block(plan), plan.table(), document, self.device.nic.as_deref())?;
        let cases = plan.cases();
        let limits = plan.effort.limits();
        let posted_max = self.device.receives_max.map(|most| (most - most.min(APART)) as u64);
        let mut is_cut = false;
        let wanted = cases.len();
        let mut progress = Progress::new(wanted, plan.common.report.json_stream);
        let interrupt = self.interrupt.clone();
        let mut last_look = Instant::now();
        let mut complete = true;
        for (at, mut case) in cases.into_iter().enumerate() {
            if posted_max.is_some_and(|most| case.posted_depth > most) {
                is_cut = true;
                continue;
            }
            let what = format!("{} {}", plan.test.name(), show_size(case.size));
            progress.begin(what.clone());
            // If progress can't be written, the row can't be either, and that one reports the
            // error.
            let go_on = || {
                let output = progress.at(|| what.clone(), |line| report.progress(line));
                let is_due = last_look.elapsed() >= LOOK_TIME;
                if is_due {
                    last_look = Instant::now();
                }
                output.is_ok() && !(is_due && report.has_no_reader()) && !interrupt.is_raised()
            };
            complete &= !interrupt.is_raised();
            if !complete {
                break;
            }
            let before = self.distance();
            let measured = match self.measure(&mut case, limits, go_on) {
                Ok(measured) => measured,
                // Rows that were measured before are kept, and so are those before ^C in the set-up
                // of a case.
                Err(failure) => {
                    let is_kept = !report.document().results.is_empty();
                    match failure {
                        Failure::Interrupted => {}
                        failure if is_kept => self.failed = Some(failure),
                        failure => return Err(failure),
                    }
                    complete = false;
                    break;
                }
            };
            progress.end();
            complete &= !measured.interrupted;
            // Interrupted in its warm-up, or before.
            if measured.iters == 0 {
                break;
            }
            let mut row = row(&case, &measured);
            let distances = before.zip(self.distance());
            row.distance_ns = distances.map_or(Vec::new(), |(before, after)| vec![before, after]);
            row.queue =
                plan.queue(at).filter(|_| plan.test == Test::Depth).map(|queue| name(&queue));
            row.histogram = row.latency_ns.and_then(|_| report.histogram(&measured.samples));
            let change = distances.and_then(|(before, after)| before.change(after));
            progress.above(|| report.row(row, &measured.matching, change))?;
            if let Some(fault) = fault_of(&measured.matching) {
                self.failed = Some(Failure::Measurement(fault));
                complete = false;
                break;
            }
        }
        drop(progress);
        let Document { results, matching, .. } = report.document();
        let mut facts = where_matched(matching, plan.common.hw_tags);
        if let (Some(most), true) = (posted_max, is_cut) {
            let most = show_count(most);
            let why = format!("rows of more than {most} posted receives: the device has no room");
            facts.push(("left out", why));
        }
        if plan.test == Test::Depth {
            facts.push(("verdict", depth_verdict(results)));
        }
        let (how, short) = match self.failed {
            Some(_) => ("failed     ", ""),
            None if !results.is_empty() => ("interrupted", ", the last of them over less time"),
            None => ("interrupted", ""),
        };
        let early = format!("{how} {} of {wanted} rows measured{short}", results.len());
        report.end(&facts, (!complete).then_some(early))
    }

    fn config(&self, plan: &Plan) -> Config {
        Config {
            sizes: plan.sizes.clone(),
            window: plan.window,
            completions: plan.completions().map(|way| name(&way)),
            wildcard_recv: Some(plan.depths.iter().any(|depth| depth.wildcard_recv)),
            other_side: Some(self.other_side()),
            large_messages: Some(self.large_messages.clone()),
            environment: self.environment.clone(),
            threads: plan.threads.clone(),
            idle_peers: plan.idle_peers,
            single_buffer: plan.single_buffer,
            oneself: plan.oneself,
            hw_tags: plan.common.hw_tags.to_string(),
            ..plan.effort.config()
        }
    }

    fn other_side(&self) -> String {
        let Some(other) = &self.other else { return "none: this process sends to itself".into() };
        match &self.device_there {
            Some(device) => format!("{}, on {device}", other.what),
            None => other.what.clone(),
        }
    }

    fn block(&mut self, plan: &Plan) -> String {
        let title = match plan.test {
            Test::Lat if plan.interval_ps.is_some() => {
                "latency under load: one way in us, from the planned time to the message's receipt"
            }
            Test::Lat if plan.oneself => {
                "latency: one receive and one send to oneself in us, over all samples"
            }
            Test::Lat => "latency: half the round trip in us, over all samples",
            Test::Bw => "bandwidth: one way; 1 MB/s is 10^6 bytes/s",
            Test::Bibw => "bandwidth: the sum of both ways at once; 1 MB/s is 10^6 bytes/s",
            Test::Rate => "message rate: one way",
            Test::Put if plan.window.is_none() => {
                "put: from the call until the other side sees the bytes, in us, over all samples"
            }
            Test::Get if plan.window.is_none() => {
                "get: from the call until the bytes are here, in us, over all samples"
            }
            Test::Fadd if plan.window.is_none() => {
                "fetch and add: from the call until the old number is here, in us, over all samples"
            }
            Test::Put => "put: windows, each until all its puts have ended; a message is a put",
            Test::Get => "get: windows, each until all its gets have ended; a message is a get",
            Test::Fadd => {
                "fetch and add: windows, each until all additions have ended; a message is one of \
                 them"
            }
            Test::Depth => "latency by depth: half the round trip in us, over all samples",
            Test::Drain => {
                "drain: a queue is filled, then all of it is matched; mean, least and most of all \
                 rounds in ns a message"
            }
        };
        // Rows by depth have no column for the size, so the title says it.
        let title = match plan.sizes[..] {
            [size] if plan.is_by_depth() => format!("{title}; messages of {}", show_size(size)),
            _ => title.to_owned(),
        };
        let checked = match (plan.common.no_validate, plan.single_buffer) {
            (true, _) => "nothing (--no-validate)",
            (_, true) => {
                "all lengths; bytes of those messages that a batch leaves behind (--single-buffer)"
            }
            _ if plan.interval_ps.is_some() => "every byte, between messages",
            _ => "every byte, outside the measured interval",
        };
        let mut facts = vec![("effort", plan.effort()), ("checked", checked.into())];
        if let Some(completions) = plan.completions() {
            let how = match completions {
                Completions::Requests => "requests, each tested (--completions)",
                Completions::Queue => "the workers' completion queues (--completions)",
            };
            facts.push(("completions", how.into()));
        }
        if let [depth] = plan.depths[..]
            && depth != QueueDepths::default()
        {
            facts.push(("matching", describe(depth)));
        }
        if let Some(nic) = nic(plan.common.hw_tags) {
            let at = receivers(plan.cases().first().map_or([true; 2], Case::receivers));
            let times = match plan.common.hw_tags {
                HwTagsArg::Auto => "",
                _ => "; its times are a program's, not a NIC's",
            };
            facts.push(("NIC", format!("{nic}; {at}{times}")));
        }
        if plan.test == Test::Drain {
            let way = "posted: from the request to send until all are received; unexpected: all \
                       messages have arrived; from the first receive until all are received";
            facts.push(("interval", way.into()));
        }
        if plan.idle_peers > 0 {
            let count = show_count(plan.idle_peers);
            facts.push(("idle", format!("{count} more peers connected to each side, silent")));
        }
        if !plan.threads.is_empty() {
            facts.push(("threads", "share one worker a side (SharedWorker); rows are sums".into()));
        }
        if std::mem::replace(&mut self.introduced, true) {
            return heading(&title, &facts);
        }
        let device = [
            ("device", format!("{}: {}", self.device.device, self.device.what)),
            ("large", self.large_messages.clone()),
            ("other side", self.other_side()),
        ];
        facts.splice(0..0, device);
        heading(&title, &facts) + &self.environment.facts()
    }
}

fn receivers([client, other]: [bool; 2]) -> &'static str {
    match (client, other) {
        (true, true) => "on both sides",
        (true, false) => "on this side, which receives",
        (false, _) => "on the other side, which receives",
    }
}

fn describe(depth: QueueDepths) -> String {
    format!(
        "{} receives posted ({} % any source), {} messages unexpected on both sides; measured \
         receives {}",
        show_count(depth.posted_depth),
        depth.wildcard_percent,
        show_count(depth.unexpected_depth),
        if depth.wildcard_recv { "from any source" } else { "name their source" },
    )
}
