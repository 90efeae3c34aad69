//! The plan of a test: from the command line to cases and limits.

use std::time::Duration;

use tagmatch_results::columns::{
    BANDWIDTH_TABLE, DEPTH_TABLE, DRAIN_TABLE, LATENCY_TABLE, ONE_SIDED_TABLE, PLANNED_RATE_TABLE,
    RATE_TABLE,
};
use tagmatch_results::{Table, WINDOW_BYTES, default_window, fit};

use crate::args::{self, Common, Effort, Measure};
use crate::failure::Failure;
use crate::spec::bounds::BATCH_MAX;
use crate::spec::{Case, Completions, DeviceArg, HwTagsArg, OneSided, Order, Queue, Traffic};
use crate::units::Sizes;

/// Bytes, or one message, that a ping-pong fills between two checks of the payloads.
const PING_PONG_BYTES: u64 = 256 << 10;
const PING_PONG_BATCH: u64 = 256;
const STREAM_WINDOWS: u64 = 16;
/// Several threads take some time to begin together, so a batch of theirs is longer.
const THREADS_BATCHES: u64 = 16;
/// A sweep of depths has many rows, so each is shorter.
const DEPTH_TIME: Duration = Duration::from_millis(100);
const DEPTHS: (u64, u64) = (16, 16 << 10);
const WILDCARDS: [u8; 3] = [0, 50, 100];
const SEED: u64 = 1;

/// A kind of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Lat,
    Bw,
    Bibw,
    Rate,
    /// Latency by depth.
    Depth,
    /// Cost of matching all of a deep queue.
    Drain,
    Put,
    Get,
    Fadd,
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lat => "lat",
            Self::Bw => "bw",
            Self::Bibw => "bibw",
            Self::Rate => "rate",
            Self::Depth => "depth",
            Self::Drain => "drain",
            Self::Put => "put",
            Self::Get => "get",
            Self::Fadd => "fadd",
        }
    }

    fn sizes(self) -> Sizes {
        match self {
            Self::Lat => Sizes::sweep(0),
            Self::Bw | Self::Bibw | Self::Put | Self::Get => Sizes::sweep(1),
            Self::Rate | Self::Depth | Self::Drain | Self::Fadd => Sizes(vec![8]),
        }
    }

    /// The one-sided operation that is measured, if it is one.
    pub(crate) fn one_sided(self) -> Option<OneSided> {
        match self {
            Self::Put => Some(OneSided::Put),
            Self::Get => Some(OneSided::Get),
            Self::Fadd => Some(OneSided::Fadd),
            _ => None,
        }
    }
}

/// The queues' fillers, and the receives, of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueDepths {
    /// The queue that is swept, at depth 0 too.
    pub(crate) queue: Option<Queue>,
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    pub(crate) wildcard_recv: bool,
}

/// The measurements of one table.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) test: Test,
    pub(crate) sizes: Vec<u64>,
    pub(crate) depths: Vec<QueueDepths>,
    pub(crate) effort: Effort,
    pub(crate) window: Option<u64>,
    /// Numbers of threads. If empty, one thread has the worker to itself.
    pub(crate) threads: Vec<u64>,
    pub(crate) idle_peers: u64,
    pub(crate) single_buffer: bool,
    pub(crate) completions: Completions,
    /// Time between two planned messages.
    pub(crate) interval_ps: Option<u64>,
    /// Whether the process sends to itself.
    pub(crate) oneself: bool,
    /// The orders in which queues are drained.
    pub(crate) orders: Vec<Order>,
    pub(crate) seed: u64,
    pub(crate) common: Common,
}

impl Plan {
    pub(crate) fn new(test: Test, args: &Measure) -> Result<Self, Failure> {
        if args.wildcard > 0 && args.posted_depth == 0 {
            return Err(Failure::Usage(format!(
                "--wildcard {}: it is a share of the posted ones, and none is posted; \
                 use --posted-depth N with it, or --wildcard-recv",
                args.wildcard
            )));
        }
        let has_rate = args.rate.is_some();
        let is_lat = test == Test::Lat;
        let refused = if has_rate && !is_lat {
            "--rate: it plans what lat measures; use tagperf lat --rate"
        } else if args.window.is_some() && is_lat && !has_rate {
            "lat --window: one message is under way at a time; use --rate R with it, or tagperf \
             bw --window"
        } else if args.completions.is_some() && is_lat {
            "lat --completions: there are no windows of messages; use tagperf bw, bibw or \
             rate --completions"
        } else if args.oneself && args.common.hw_tags != HwTagsArg::Off {
            "--self --hw-tags: messages to oneself pass no NIC; use either alone"
        } else if args.oneself && matches!(args.common.device(), DeviceArg::Verbs { .. }) {
            "--self --device verbs: messages to oneself pass no device; use either alone"
        } else if args.oneself && matches!(args.common.device(), DeviceArg::Tcp { .. }) {
            "--self --device tcp: messages to oneself pass no device; use either alone"
        } else if args.oneself && test == Test::Bibw {
            "bibw --self: there is only one way; use tagperf bw --self"
        } else {
            ""
        };
        refuse(refused)?;
        let sizes = if has_rate { Sizes(vec![8]) } else { test.sizes() };
        let plan = Self {
            sizes: args.sizes.clone().unwrap_or(sizes).0,
            depths: vec![QueueDepths {
                queue: None,
                posted_depth: args.posted_depth,
                unexpected_depth: args.unexpected_depth,
                wildcard_percent: args.wildcard,
                wildcard_recv: args.wildcard_recv,
            }],
            effort: args.effort.clone(),
            window: args.window,
            threads: args.threads.clone().map_or(Vec::new(), |threads| threads.0),
            idle_peers: args.idle_peers,
            single_buffer: args.single_buffer,
            completions: args.completions.unwrap_or_default(),
            interval_ps: args.rate,
            oneself: args.oneself,
            ..Self::basic(test, &args.common)
        };
        plan.checked()
    }

    /// The plan of `depth`: a sweep of depths, or drains.
    pub(crate) fn depth(args: &args::Depth) -> Result<Self, Failure> {
        let test = if args.drain { Test::Drain } else { Test::Depth };
        let (least, most) = DEPTHS;
        let default = || Sizes::powers(if args.drain { least } else { 0 }, most);
        let depths = args.depths.clone().unwrap_or_else(default).0;
        let only_unexpected = args.queue == Some(Queue::Unexpected);
        let refused = if args.drain && depths.contains(&0) {
            "--drain: there is nothing to drain at depth 0; use --depths 16..16K"
        } else if args.drain && only_unexpected && args.common.hw_tags != HwTagsArg::Off {
            "--drain --queue unexpected --hw-tags: its messages all come before their receives, a NIC \
             would match none; use --queue posted"
        } else if args.wildcard.is_some() && only_unexpected && !args.drain {
            "--wildcard with --queue unexpected: it is a share of the posted ones; use --queue \
             posted, --drain or --wildcard-recv"
        } else if args.seed.is_some() && !args.order.contains(&Order::Random) {
            "--seed: no order is random; use --order random with it"
        } else {
            ""
        };
        refuse(refused)?;
        let default = if args.drain { &WILDCARDS[..1] } else { &WILDCARDS };
        let wildcards = args.wildcard.as_ref().map_or(default, |percents| &percents.0);
        let mut all = Vec::new();
        // An empty queue is measured once, whichever queue and share of wildcards would follow.
        if depths.contains(&0) {
            all.push(QueueDepths {
                queue: Some(args.queue.unwrap_or(Queue::Posted)),
                wildcard_recv: args.wildcard_recv,
                ..QueueDepths::default()
            });
        }
        let deep: Vec<_> = depths.into_iter().filter(|&depth| depth > 0).collect();
        let is_wanted = |queue: &Queue| args.queue.is_none_or(|wanted| wanted == *queue);
        for queue in [Queue::Posted, Queue::Unexpected].into_iter().filter(is_wanted) {
            // Only receives can take any source, so the unexpected queue has no share of wildcards
            // to sweep. A drain's receives have one with either queue.
            let wildcards = if queue == Queue::Posted || args.drain { wildcards } else { &[0] };
            for &wildcard_percent in wildcards {
                all.extend(deep.iter().map(|&depth| {
                    let (posted, unexpected) = match queue {
                        Queue::Posted => (depth, 0),
                        Queue::Unexpected => (0, depth),
                    };
                    QueueDepths {
                        queue: Some(queue),
                        posted_depth: posted,
                        unexpected_depth: unexpected,
                        wildcard_percent,
                        wildcard_recv: args.wildcard_recv,
                    }
                }));
            }
        }
        let no_limit = args.effort.duration.is_none() && args.effort.iters.is_none();
        let duration = if no_limit { Some(DEPTH_TIME) } else { args.effort.duration };
        let plan = Self {
            sizes: args.size.map_or_else(|| test.sizes().0, |size| vec![size]),
            depths: all,
            effort: Effort { duration, ..args.effort.clone() },
            idle_peers: args.idle_peers,
            orders: if args.order.is_empty() { vec![Order::Forward] } else { args.order.clone() },
            seed: args.seed.unwrap_or(SEED),
            ..Self::basic(test, &args.common)
        };
        plan.checked()
    }

    /// The plan of a one-sided operation.
    pub(crate) fn one_sided(
        test: Test,
        sizes: Option<Sizes>,
        args: &args::OneSidedArgs,
    ) -> Result<Self, Failure> {
        if args.common.hw_tags != HwTagsArg::Off {
            refuse("--hw-tags: one-sided operations match nothing; use lat or bw with it")?;
        }
        let plan = Self {
            sizes: sizes.unwrap_or_else(|| test.sizes()).0,
            effort: args.effort.clone(),
            window: args.window,
            ..Self::basic(test, &args.common)
        };
        plan.checked()
    }

    /// Checks all bounds now, so that a large size is not refused after a minute of smaller ones.
    fn checked(self) -> Result<Self, Failure> {
        let has_times = self.window.is_none() && self.test.one_sided().is_some()
            || matches!(self.test, Test::Lat | Test::Depth);
        if self.common.report.histogram && !has_times {
            let name = self.test.name();
            let right = "lat, or depth without --drain";
            return Err(Failure::Usage(format!(
                "--histogram: {name} measures no single messages; use {right}"
            )));
        }
        let refused = match (&self.common.device(), self.common.hw_tags) {
            (DeviceArg::Shm | DeviceArg::Tcp { .. }, HwTagsArg::Emu) => {
                "--hw-tags emu: it is behind verbs; use --device verbs with it, or model"
            }
            (DeviceArg::Ucx { .. }, HwTagsArg::Emu | HwTagsArg::Model { .. }) => {
                "--hw-tags: UCX matches by itself; use auto, which lets it use its NIC, or --device \
                 verbs"
            }
            (DeviceArg::Ofi { .. }, HwTagsArg::Emu | HwTagsArg::Model { .. }) => {
                "--hw-tags: libfabric matches by itself; use auto, which lets it use its NIC, or \
                 --device verbs"
            }
            _ => "",
        };
        refuse(refused)?;
        self.cases().iter().try_for_each(Case::check).map_err(Failure::Usage)?;
        Ok(self)
    }

    /// All sizes of the test at depth 0, with defaults for all else.
    fn basic(test: Test, common: &Common) -> Self {
        Self {
            test,
            sizes: test.sizes().0,
            depths: vec![QueueDepths::default()],
            effort: Effort::default(),
            window: None,
            threads: Vec::new(),
            idle_peers: 0,
            single_buffer: false,
            completions: Completions::default(),
            interval_ps: None,
            oneself: false,
            orders: vec![Order::Forward],
            seed: SEED,
            common: common.clone(),
        }
    }

    /// All sizes of the test for `time` each.
    pub(crate) fn brief(test: Test, time: Duration, common: &Common) -> Self {
        let effort = Effort { duration: Some(time), ..Effort::default() };
        Self { effort, ..Self::basic(test, common) }
    }

    /// Whether rows differ in their depths; they have no column for the size then.
    pub(crate) fn is_by_depth(&self) -> bool {
        matches!(self.test, Test::Depth | Test::Drain) || self.depths.len() > 1
    }

    /// Whether the round trips of a ping-pong are measured.
    pub(crate) fn is_round_trip(&self) -> bool {
        matches!(self.test, Test::Lat | Test::Depth) && self.interval_ps.is_none() && !self.oneself
    }

    /// A case for each size, number of threads, depth and order.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let threads: Vec<_> = match &self.threads[..] {
            [] => vec![None],
            threads => threads.iter().copied().map(Some).collect(),
        };
        let mut cases = Vec::new();
        for &order in self.orders.iter().filter(|_| self.test == Test::Drain) {
            cases.extend(self.depths.iter().map(|&depth| self.drain(depth, order)));
        }
        for &depth in self.depths.iter().filter(|_| self.test != Test::Drain) {
            for &threads in &threads {
                cases.extend(self.sizes.iter().map(|&size| self.case(size, depth, threads)));
            }
        }
        cases
    }

    /// How the windows' operations end, where there are windows.
    pub(crate) fn completions(&self) -> Option<Completions> {
        self.cases().first().and_then(Case::completions)
    }

    /// The queue that case number `at` of [`cases`](Self::cases) is about, in a sweep of depths.
    pub(crate) fn queue(&self, at: usize) -> Option<Queue> {
        // A sweep has a case for each depth, a drain has all depths for each order.
        let depth = self.depths.get(at % self.depths.len().max(1))?;
        depth.queue
    }

    /// A case whose queue is filled with the measured messages or receives, not with fillers.
    fn drain(&self, depth: QueueDepths, order: Order) -> Case {
        let queue = depth.queue.unwrap_or(Queue::Posted);
        let deep = depth.posted_depth.max(depth.unexpected_depth);
        let size = self.sizes.first().copied().unwrap_or(0);
        let none = QueueDepths { posted_depth: 0, unexpected_depth: 0, ..depth };
        let traffic = Traffic::Drain { queue, order, seed: self.seed };
        Case { traffic, window: 1, batch: deep, ..self.case(size, none, None) }
    }

    pub(crate) fn case(&self, size: u64, depth: QueueDepths, threads: Option<u64>) -> Case {
        let fit = |bytes, most| fit(bytes, size, most);
        let batches = match threads {
            Some(2..) => fit(WINDOW_BYTES, THREADS_BATCHES),
            _ => 1,
        };
        let window = self.window.unwrap_or_else(|| default_window(size));
        let (traffic, window, batch) = match (self.test, self.interval_ps) {
            (Test::Lat, Some(interval_ps)) => (Traffic::Planned { interval_ps }, window, 1),
            (Test::Lat | Test::Depth | Test::Drain, _) => {
                (Traffic::PingPong, 1, fit(PING_PONG_BYTES, PING_PONG_BATCH) * batches)
            }
            (Test::Bw | Test::Bibw | Test::Rate, _) => {
                let windows = (WINDOW_BYTES / (size.max(1) * window)).clamp(1, STREAM_WINDOWS);
                let both = self.test == Test::Bibw;
                let traffic = if both { Traffic::Both } else { Traffic::Stream };
                (traffic, window, window * windows * batches)
            }
            (Test::Put | Test::Get | Test::Fadd, _) => {
                let operation = self.test.one_sided().unwrap_or(OneSided::Put);
                let traffic = Traffic::OneSided { operation, times_each: self.window.is_none() };
                let window = self.window.unwrap_or(1);
                (traffic, window, fit(PING_PONG_BYTES, PING_PONG_BATCH).max(window))
            }
        };
        Case {
            traffic,
            size,
            window,
            batch: batch.min(BATCH_MAX),
            posted_depth: depth.posted_depth,
            unexpected_depth: depth.unexpected_depth,
            wildcard_percent: depth.wildcard_percent,
            wildcard_recv: depth.wildcard_recv,
            validate: !self.common.no_validate,
            pin: self.common.pin().map(|pin| pin.there),
            device: self.common.device(),
            threads,
            idle_peers: self.idle_peers,
            single_buffer: self.single_buffer,
            hw_tags: self.common.hw_tags,
            completions: self.completions,
            address: String::new(),
        }
    }

    /// The test as JSON names it. One-sided operations in windows have a name of their own, since
    /// their figure is another one.
    pub(crate) fn name(&self) -> &'static str {
        match self.test {
            Test::Put if self.window.is_some() => "put_bw",
            Test::Get if self.window.is_some() => "get_bw",
            Test::Fadd if self.window.is_some() => "fadd_rate",
            test => test.name(),
        }
    }

    /// The table that the rows are printed in.
    pub(crate) fn table(&self) -> Table {
        let columns = match self.test {
            Test::Lat if self.interval_ps.is_some() => PLANNED_RATE_TABLE,
            Test::Lat if self.is_by_depth() => DEPTH_TABLE,
            Test::Lat => LATENCY_TABLE,
            Test::Depth => DEPTH_TABLE,
            Test::Bw | Test::Bibw => BANDWIDTH_TABLE,
            Test::Rate => RATE_TABLE,
            Test::Drain => DRAIN_TABLE,
            Test::Put | Test::Get | Test::Fadd if self.window.is_none() => LATENCY_TABLE,
            Test::Put | Test::Get | Test::Fadd => ONE_SIDED_TABLE,
        };
        if self.threads.is_empty() { Table::new(columns) } else { Table::with_threads(columns) }
    }

    /// How long each row is measured, in words.
    pub(crate) fn effort(&self) -> String {
        let what = match self.test.one_sided() {
            Some(_) => "operations",
            None if self.is_round_trip() => "round trips",
            None => "messages",
        };
        let each =
            if self.threads.iter().any(|&threads| threads > 1) { " of each thread" } else { "" };
        self.effort.describe(what, each)
    }
}

/// Refuses the command line, unless there is nothing to say.
fn refuse(what: &str) -> Result<(), Failure> {
    if what.is_empty() { Ok(()) } else { Err(Failure::Usage(what.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};

    fn plan(line: &str) -> Result<Plan, Failure> {
        let args = std::iter::once("tagperf").chain(line.split_whitespace()).map(Into::into);
        match Cli::read(args)?.and_then(|cli| cli.command) {
            Some(Command::Lat(args)) => Plan::new(Test::Lat, &args),
            Some(Command::Bw(args)) => Plan::new(Test::Bw, &args),
            Some(Command::Rate(args)) => Plan::new(Test::Rate, &args),
            Some(Command::Bibw(args)) => Plan::new(Test::Bibw, &args),
            Some(Command::Depth(args)) => Plan::depth(&args),
            Some(Command::Put(args)) => Plan::one_sided(Test::Put, args.sizes, &args.one_sided),
            Some(Command::Fadd(args)) => Plan::one_sided(Test::Fadd, None, &args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_default_leg_is_in_bounds() {
        for (line, cases) in
            [("lat", 24), ("bw", 23), ("rate", 1), ("bibw", 23), ("bw --sizes 1G", 1), ("put", 23)]
        {
            let plan = plan(line).unwrap();
            assert_eq!(plan.cases().len(), cases, "{line}");
        }
        let bw = plan("bw --sizes 8,4M").unwrap().cases();
        assert_eq!((bw[0].window, bw[0].batch), (64, 1024));
        assert_eq!((bw[1].window, bw[1].batch), (2, 2));
        let explicit = plan("bw --sizes 4M --window 16").unwrap().cases();
        assert_eq!((explicit[0].window, explicit[0].batch), (16, 16));
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_runs() {
        for line in [
            "bw --sizes 1G --window 64",
            "lat --self --device verbs",
            "lat --wildcard 50",
            "bw --rate 100",
            "bibw --self",
            "lat --self --hw-tags model",
            "lat --hw-tags emu",
            "depth --drain --queue unexpected --hw-tags model",
            "lat --window 4",
            "lat --completions queue",
            "lat --rate 1k --completions requests",
            "rate --completions queue --threads 1,2",
            "depth --queue unexpected --wildcard 100",
            "depth --drain --seed 5",
            "bw --histogram",
            "depth --drain --histogram",
            "depth --drain --depths 0,1",
            "depth --drain --depths 1M --sizes 8K",
            "bw --sizes 1G --threads 3",
            "bw --sizes 8,1G --window 5",
            "put --sizes 1G --window 5",
            "put --device ucx",
            "put --hw-tags model",
            "put --window 4 --histogram",
        ] {
            let failure = plan(line).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(_)), "{line}");
            assert!(failure.to_string().contains("; use "), "{failure}");
        }
    }

    #[test]
    fn a_sweep_has_every_queue_share_and_depth_once_and_depth_0_once_for_all() {
        let cases = plan("depth --depths 0,16 --wildcard 0,25").unwrap().cases();
        let found: Vec<_> = cases
            .iter()
            .map(|case| (case.posted_depth, case.unexpected_depth, case.wildcard_percent))
            .collect();
        assert_eq!(found, [(0, 0, 0), (16, 0, 0), (16, 0, 25), (0, 16, 0)]);
        assert!(cases.iter().all(|case| case.traffic == Traffic::PingPong && case.size == 8));
        assert_eq!(plan("depth").unwrap().cases().len(), 1 + 15 * 4);
        assert_eq!(plan("depth --queue unexpected").unwrap().cases().len(), 16);
    }

    #[test]
    fn a_drain_fills_its_queue_with_what_it_measures() {
        let cases = plan("depth --drain --depths 7 --order reverse,random --wildcard 50 --seed 9");
        let cases = cases.unwrap().cases();
        assert!(cases.iter().all(|case| (case.posted_depth, case.unexpected_depth) == (0, 0)));
        assert!(cases.iter().all(|case| (case.batch, case.wildcard_percent) == (7, 50)));
        let traffic: Vec<_> = cases.iter().map(|case| case.traffic).collect();
        let want = |queue, order| Traffic::Drain { queue, order, seed: 9 };
        assert_eq!(
            traffic,
            [
                want(Queue::Posted, Order::Reverse),
                want(Queue::Unexpected, Order::Reverse),
                want(Queue::Posted, Order::Random),
                want(Queue::Unexpected, Order::Random),
            ]
        );
    }

    #[test]
    fn one_sided_operations_are_timed_one_by_one_or_run_in_windows() {
        let all = plan("put --sizes 8,4M").unwrap();
        let traffic = |times_each| Traffic::OneSided { operation: OneSided::Put, times_each };
        let cases = all.cases();
        assert!(cases.iter().all(|case| case.traffic == traffic(true) && case.window == 1));
        assert_eq!((all.name(), cases[0].batch, cases[1].batch), ("put", 256, 1));
        let windows = plan("put --sizes 8,4M --window 16").unwrap();
        let cases = windows.cases();
        assert!(cases.iter().all(|case| case.traffic == traffic(false) && case.window == 16));
        assert_eq!((windows.name(), cases[0].batch, cases[1].batch), ("put_bw", 256, 16));
        assert!(plan("put --sizes 0").is_err());
        assert_eq!(plan("fadd").unwrap().cases()[0].size, 8);
    }

    #[test]
    fn every_number_of_threads_has_its_legs() {
        let cases = plan("bw --sizes 8,4M --threads 1,2,64").unwrap().cases();
        let found: Vec<_> = cases.iter().map(|case| (case.threads, case.size)).collect();
        let want = [1, 2, 64].into_iter().flat_map(|n| [(Some(n), 8), (Some(n), 4 << 20)]);
        assert_eq!(found, want.collect::<Vec<_>>());
        assert!(plan("lat --threads 64").is_ok() && plan("bibw --threads 64").is_ok());
    }

    #[test]
    fn a_sweep_of_depths_takes_less_time_a_row_unless_told() {
        let time = |line: &str| plan(line).unwrap().effort.time();
        assert_eq!(time("depth"), Some(DEPTH_TIME));
        assert_eq!(time("depth --iters 7"), None);
        assert!(time("lat") > time("depth"));
        assert_eq!(
            plan("lat --iters 7 --duration 1s").unwrap().effort(),
            "7 round trips or 1 s a row, after 1 000 round trips or 50 ms of warm-up"
        );
    }
}
