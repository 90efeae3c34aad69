//! What is to be measured: from the command line to legs and limits.

use std::time::Duration;

use serde::Serialize;

use super::client::Limits;
use crate::args::{Common, ITERS_MAX, Measure};
use crate::control::message::{BATCH_MAX, Leg, Traffic};
use crate::failure::Failure;
use crate::link::check_device;
use crate::units::{Sizes, show_count, show_duration};

/// Unless told: time a size, and warm-up before it.
const TIME: Duration = Duration::from_millis(500);
const WARMUP_ITERS: u64 = 1000;
const WARMUP_TIME: Duration = Duration::from_millis(50);
const WINDOW: u64 = 64;
/// Unless told, not more than this is in flight or between two checks: as much as stays in a core's
/// own cache, so that it is the transport that is measured and not main memory.
const WINDOW_BYTES: u64 = 1 << 20;
/// A large message does not have to wait for the answer to the one before it.
const WINDOW_MIN: u64 = 2;
/// Between two checks of the payloads a ping-pong fills this much, or one message.
const PING_PONG_BYTES: u64 = 256 << 10;
const PING_PONG_BATCH: u64 = 256;
const STREAM_WINDOWS: u64 = 16;
/// No limit but the other one.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// A kind of measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Lat,
    Bw,
    Rate,
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lat => "lat",
            Self::Bw => "bw",
            Self::Rate => "rate",
        }
    }

    fn sizes(self) -> Sizes {
        match self {
            Self::Lat => Sizes::sweep(0),
            Self::Bw => Sizes::sweep(1),
            Self::Rate => Sizes(vec![8]),
        }
    }
}

/// Fillers and receives of a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct Depth {
    pub(crate) posted_depth: u64,
    pub(crate) unexpected_depth: u64,
    pub(crate) wildcard_percent: u8,
    pub(crate) wildcard_recv: bool,
}

/// A table's worth of measurements.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) test: Test,
    pub(crate) sizes: Vec<u64>,
    pub(crate) depths: Vec<Depth>,
    pub(crate) iters: Option<u64>,
    pub(crate) duration: Option<Duration>,
    pub(crate) warmup: Option<u64>,
    pub(crate) window: Option<u64>,
    pub(crate) common: Common,
}

impl Plan {
    pub(crate) fn new(test: Test, args: &Measure) -> Result<Self, Failure> {
        check_device(args.common.device.as_deref())
            .map_err(|why| Failure::Usage(format!("--device: {why}")))?;
        if args.wildcard > 0 && args.posted_depth == 0 {
            let right = "--posted-depth N with it, or --wildcard-recv, would be right";
            return Err(Failure::Usage(format!(
                "--wildcard {}: it is a share of the posted ones, and none is posted; {right}",
                args.wildcard
            )));
        }
        let plan = Self {
            test,
            sizes: args.sizes.clone().unwrap_or_else(|| test.sizes()).0,
            depths: vec![Depth {
                posted_depth: args.posted_depth,
                unexpected_depth: args.unexpected_depth,
                wildcard_percent: args.wildcard,
                wildcard_recv: args.wildcard_recv,
            }],
            iters: args.iters,
            duration: args.duration,
            warmup: args.warmup,
            window: args.window,
            common: args.common.clone(),
        };
        // All bounds now, not after a minute of smaller sizes.
        plan.legs().iter().try_for_each(Leg::check).map_err(Failure::Usage)?;
        Ok(plan)
    }

    /// All sizes of the test for `time` each, as the tour has it.
    pub(crate) fn tour(test: Test, time: Duration, common: &Common) -> Self {
        Self {
            test,
            sizes: test.sizes().0,
            depths: vec![Depth::default()],
            iters: None,
            duration: Some(time),
            warmup: None,
            window: None,
            common: common.clone(),
        }
    }

    /// How long a row is measured at most, unless only the iterations say.
    pub(crate) fn duration(&self) -> Option<Duration> {
        self.duration.or(self.iters.is_none().then_some(TIME))
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            iters: self.iters.unwrap_or(ITERS_MAX),
            time: self.duration().unwrap_or(FOREVER),
            warmup_iters: self.warmup.unwrap_or(WARMUP_ITERS),
            warmup_time: if self.warmup.is_some() { FOREVER } else { WARMUP_TIME },
        }
    }

    /// A leg for each size and depth.
    pub(crate) fn legs(&self) -> Vec<Leg> {
        let sizes = |&depth: &Depth| self.sizes.iter().map(move |&size| self.leg(size, depth));
        self.depths.iter().flat_map(sizes).collect()
    }

    pub(crate) fn leg(&self, size: u64, depth: Depth) -> Leg {
        let fit = |bytes: u64, most: u64| (bytes / size.max(1)).clamp(1, most);
        let (traffic, window, batch) = match self.test {
            Test::Lat => (Traffic::PingPong, 1, fit(PING_PONG_BYTES, PING_PONG_BATCH)),
            Test::Bw | Test::Rate => {
                let window =
                    self.window.unwrap_or_else(|| fit(WINDOW_BYTES, WINDOW).max(WINDOW_MIN));
                let windows = (WINDOW_BYTES / (size.max(1) * window)).clamp(1, STREAM_WINDOWS);
                (Traffic::Stream, window, (window * windows).min(BATCH_MAX))
            }
        };
        Leg {
            traffic,
            size,
            window,
            batch,
            posted_depth: depth.posted_depth,
            unexpected_depth: depth.unexpected_depth,
            wildcard_percent: depth.wildcard_percent,
            wildcard_recv: depth.wildcard_recv,
            validate: !self.common.no_validate,
            pin: self.common.pin().map(|pin| pin.there),
            device: self.common.device.clone(),
            address: String::new(),
        }
    }

    /// How long each row is measured, in words.
    pub(crate) fn effort(&self) -> String {
        let what = if self.test == Test::Lat { "round trips" } else { "messages" };
        let iters = self.iters.map(|iters| format!("{} {what}", show_count(iters)));
        let time = self.duration().map(show_duration);
        let limits = [iters, time].into_iter().flatten().collect::<Vec<_>>().join(" or ");
        let warmup = match self.warmup {
            Some(iters) => format!("{} {what} of warm-up", show_count(iters)),
            None => format!(
                "{} {what} or {} of warm-up",
                show_count(WARMUP_ITERS),
                show_duration(WARMUP_TIME)
            ),
        };
        format!("{limits} a row, after {warmup}")
    }
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
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_default_leg_is_in_bounds() {
        for (line, legs) in [("lat", 24), ("bw", 23), ("rate", 1), ("bw --sizes 1G", 1)] {
            let plan = plan(line).unwrap();
            assert_eq!(plan.legs().len(), legs, "{line}");
        }
        let bw = plan("bw --sizes 8,4M").unwrap().legs();
        assert_eq!((bw[0].window, bw[0].batch), (64, 1024));
        assert_eq!((bw[1].window, bw[1].batch), (2, 2));
        let explicit = plan("bw --sizes 4M --window 16").unwrap().legs();
        assert_eq!((explicit[0].window, explicit[0].batch), (16, 16));
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_runs() {
        for line in [
            "bw --sizes 1G --window 64",
            "lat --device verbs",
            "lat --wildcard 50",
            "bw --sizes 8,1G --window 5",
        ] {
            let failure = plan(line).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(_)), "{line}");
            assert!(failure.to_string().contains("would be right"), "{failure}");
        }
    }

    #[test]
    fn limits_are_the_first_reached() {
        let limits = |line: &str| plan(line).unwrap().limits();
        assert_eq!(limits("lat").time, TIME);
        assert_eq!((limits("lat --iters 7").iters, limits("lat --iters 7").time), (7, FOREVER));
        assert_eq!(limits("lat --iters 7 --duration 1s").time, Duration::from_secs(1));
        assert_eq!(limits("lat --warmup 0").warmup_iters, 0);
        assert_eq!(
            plan("lat --iters 7 --duration 1s").unwrap().effort(),
            "7 round trips or 1 s a row, after 1 000 round trips or 50 ms of warm-up"
        );
    }
}
