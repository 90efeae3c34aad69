//! Profiles: kinds of runs, and the settings that a seed draws from a profile.

use tagmatch_fallback::{Amount, CreditConfig, EngineConfig};
use tagmatch_soft::TagLayout;
use tagmatch_testkit::random::{Random, mix};

use crate::adapter::{Bare, Devices, ModelNic};
use crate::wire::WireConfig;

/// The frequency of each kind of step, in parts of the sum.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Sends of all modes.
    pub send: u32,
    /// Receives of all patterns.
    pub receive: u32,
    /// Turns of taking events.
    pub work: u32,
    /// Probes.
    pub probe: u32,
    /// Matched probes.
    pub matched_probe: u32,
    /// Receives of matched messages.
    pub receive_message: u32,
    /// Discards of matched messages.
    pub discard: u32,
    /// Cancels of receives.
    pub cancel: u32,
    /// Requests that are dropped while they are under way.
    pub detach: u32,
    /// READs that fail.
    pub fail_read: u32,
    /// Workers that pause for a while.
    pub stall: u32,
    /// Workers that end, in order or killed.
    pub kill: u32,
    /// Workers that come back under a new identity.
    pub revive: u32,
    /// Workers that disconnect a peer.
    pub disconnect: u32,
    /// Points at which all workers settle and everything is checked.
    pub settle: u32,
}

/// A range, both ends included, from which each seed draws.
pub type Range = (u32, u32);

/// A kind of run. All that is drawn is a function of the seed.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name for `--profile`.
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// Whether each worker has a NIC that matches, whose choices are random.
    pub nic: Option<ModelNic>,
    /// Number of machines that the workers are on; (0, 0) if all peers are reached over one
    /// network.
    pub machines: Range,
    /// Number of workers.
    pub workers: Range,
    /// The frequencies of the steps.
    pub weights: Weights,
    /// Different tags per context and sender.
    pub tags: Range,
    /// Exotic masks, beside those that a tag layout makes.
    pub masks: Range,
    /// Messages, of 1000, whose tags may name another source than their sender.
    pub lies_per_mille: u32,
    /// Receives, of 1000, that look at an exotic mask.
    pub exotic_per_mille: u32,
    /// Receives, of 1000, whose tags and masks surely pin the source.
    pub pinned_per_mille: u32,
    /// Messages of one sender to one receiver that may be without a receive; receives that a worker
    /// may have posted. Bounds the cost of a check.
    pub waiting_max: Range,
    /// Largest eager payload in bytes; receivers announce between half of it and all of it.
    pub eager_max: Range,
    /// Largest message in bytes.
    pub length_max: Range,
    /// Messages, of 1000, that are longer than the eager bound.
    pub long_per_mille: u32,
    /// Messages that one direction between two workers holds.
    pub capacity: Range,
    /// The most ticks that a message or a READ takes. A tick is a call or a poll of the wire.
    pub delay_max: Range,
    /// Messages, of 1000, that are delayed at all.
    pub delayed_per_mille: u32,
    /// Sends, of 1000, that are refused as full although there is room.
    pub refused_per_mille: u32,
    /// Runs, of 1000, whose credits are tiny.
    pub tiny_credit_per_mille: u32,
    /// Sends that may wait for their FIN at once.
    pub operations_max: Range,
    /// Buffers that may be exposed at once.
    pub exposures_max: Range,
}

const WEIGHTS: Weights = Weights {
    send: 260,
    receive: 250,
    work: 380,
    probe: 15,
    matched_probe: 20,
    receive_message: 16,
    discard: 5,
    cancel: 15,
    detach: 4,
    fail_read: 1,
    stall: 3,
    kill: 0,
    revive: 0,
    disconnect: 0,
    settle: 1,
};

const STEADY: Option<ModelNic> = Some(ModelNic { fails: false });

const MIXED: Profile = Profile {
    name: "mixed",
    about: "some of everything",
    nic: None,
    machines: (0, 0),
    workers: (2, 5),
    weights: WEIGHTS,
    tags: (1, 6),
    masks: (1, 6),
    lies_per_mille: 0,
    exotic_per_mille: 80,
    pinned_per_mille: 0,
    waiting_max: (8, 32),
    eager_max: (48, 512),
    length_max: (600, 4096),
    long_per_mille: 60,
    capacity: (2, 32),
    delay_max: (0, 40),
    delayed_per_mille: 150,
    refused_per_mille: 10,
    tiny_credit_per_mille: 150,
    operations_max: (4, 4096),
    exposures_max: (4, 4096),
};

/// All profiles. Each is run by `ci/soak`.
pub const PROFILES: [Profile; 14] = [
    MIXED,
    Profile {
        name: "wild",
        about: "few tags, most receives with wildcards, exotic masks, many cancels",
        weights: Weights {
            cancel: 40,
            probe: 30,
            matched_probe: 40,
            receive_message: 30,
            ..WEIGHTS
        },
        tags: (1, 2),
        masks: (4, 12),
        exotic_per_mille: 350,
        ..MIXED
    },
    Profile {
        name: "deep",
        about: "long lists, more mask classes than are indexed",
        workers: (2, 3),
        weights: Weights { work: 300, cancel: 6, settle: 0, ..WEIGHTS },
        tags: (4, 40),
        masks: (20, 60),
        exotic_per_mille: 500,
        waiting_max: (60, 200),
        ..MIXED
    },
    Profile {
        name: "starved",
        about: "tiny credits, ways that hold one or two messages, few operations",
        weights: Weights { stall: 8, ..WEIGHTS },
        capacity: (1, 2),
        refused_per_mille: 150,
        tiny_credit_per_mille: 1000,
        operations_max: (1, 4),
        exposures_max: (1, 3),
        ..MIXED
    },
    Profile {
        name: "large",
        about: "large and synchronous messages, truncation, failing READs",
        weights: Weights { fail_read: 10, ..WEIGHTS },
        length_max: (2000, 32_768),
        long_per_mille: 450,
        ..MIXED
    },
    Profile {
        name: "deaths",
        about: "workers that stall, break with each other, end, die and come back as others",
        workers: (3, 6),
        weights: Weights {
            stall: 6,
            kill: 3,
            revive: 25,
            disconnect: 2,
            fail_read: 2,
            detach: 8,
            settle: 2,
            ..WEIGHTS
        },
        long_per_mille: 200,
        ..MIXED
    },
    Profile {
        name: "graves",
        about: "tiny credits, workers that die while many of their messages wait",
        workers: (3, 5),
        weights: Weights {
            receive: 60,
            matched_probe: 5,
            kill: 25,
            revive: 300,
            settle: 2,
            ..WEIGHTS
        },
        tiny_credit_per_mille: 1000,
        ..MIXED
    },
    Profile {
        name: "nic",
        about: "NICs that match: every knob but failures",
        nic: STEADY,
        ..MIXED
    },
    Profile {
        name: "nic-wild",
        about: "NICs that match, wildcards, many cancels, tags that name another sender",
        nic: STEADY,
        weights: Weights { cancel: 60, ..WEIGHTS },
        tags: (1, 2),
        masks: (4, 12),
        lies_per_mille: 100,
        exotic_per_mille: 200,
        ..MIXED
    },
    Profile {
        name: "nic-deaths",
        about: "NICs that match, workers that come and go, failing READs",
        nic: STEADY,
        workers: (3, 6),
        weights: Weights { kill: 3, revive: 25, disconnect: 2, fail_read: 4, ..WEIGHTS },
        long_per_mille: 200,
        ..MIXED
    },
    Profile {
        name: "nic-broken",
        about: "NICs that match, whose READs and queue pairs fail; workers that come and go",
        nic: Some(ModelNic { fails: true }),
        workers: (3, 6),
        weights: Weights { kill: 3, revive: 25, disconnect: 1, ..WEIGHTS },
        long_per_mille: 200,
        ..MIXED
    },
    Profile {
        name: "several",
        about: "workers on several machines: shared memory within, two networks between; deaths",
        machines: (2, 3),
        workers: (3, 6),
        weights: Weights { kill: 2, revive: 25, disconnect: 1, fail_read: 2, ..WEIGHTS },
        long_per_mille: 200,
        ..MIXED
    },
    Profile {
        name: "several-nic",
        about: "as several, with a NIC that matches on one network; many cancels",
        nic: STEADY,
        machines: (2, 4),
        weights: Weights { receive: 300, cancel: 30, ..WEIGHTS },
        workers: (3, 5),
        tags: (1, 3),
        exotic_per_mille: 30,
        pinned_per_mille: 850,
        ..MIXED
    },
    Profile {
        name: "several-nic-deaths",
        about: "as several-nic, with failing READs and workers that come and go",
        nic: Some(ModelNic { fails: true }),
        machines: (2, 4),
        workers: (3, 6),
        weights: Weights { kill: 3, revive: 25, disconnect: 2, fail_read: 4, ..WEIGHTS },
        lies_per_mille: 30,
        exotic_per_mille: 30,
        pinned_per_mille: 800,
        long_per_mille: 200,
        ..MIXED
    },
];

impl Profile {
    /// The profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The devices of the runs.
    #[must_use]
    pub fn devices(&self) -> Devices {
        match (self.nic, self.is_on_several()) {
            (None, false) => Devices::Bare(Bare::default()),
            (Some(nic), false) => Devices::Nic(nic),
            (None, true) => Devices::Several,
            (Some(nic), true) => Devices::SeveralWithNic(nic),
        }
    }

    /// Whether workers reach their peers over several networks.
    #[must_use]
    pub const fn is_on_several(&self) -> bool {
        self.machines.1 > 0
    }
}

/// The settings that a seed draws from a profile.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Workers at the start.
    pub workers: u32,
    /// Different tags per context and sender.
    pub tags: u32,
    /// Exotic masks.
    pub masks: Vec<u64>,
    /// See [`Profile::waiting_max`].
    pub waiting_max: u32,
    /// Largest message in bytes.
    pub length_max: u32,
    /// Settings of all engines but for their seed.
    pub engine: EngineConfig,
    /// Settings of the wires.
    pub wire: WireConfig,
}

/// Bits of a tag that exotic masks look at: contexts, senders and tags as programs use them.
const USED_BITS: u64 = 0x0001_0000_0700_003f;

impl Setup {
    /// Draws the settings. `workers` overrides the profile's.
    #[must_use]
    pub fn new(profile: &Profile, seed: u64, workers: Option<u32>) -> Self {
        let mut random = Random::stream(seed, 1);
        let random = &mut random;
        let drawn = random.between(profile.workers);
        let count = random.between(profile.masks);
        // Most masks have few bits, or they would never match.
        let masks = (0..count)
            .map(|_| if random.per_mille(700) { random.bits() & random.bits() } else { random.bits() } & USED_BITS)
            .collect();
        let eager_max = random.between(profile.eager_max);
        Setup {
            workers: workers.unwrap_or(drawn),
            tags: random.between(profile.tags),
            masks,
            waiting_max: random.between(profile.waiting_max),
            length_max: random.between(profile.length_max),
            engine: EngineConfig {
                eager_max: eager_max as usize,
                // Drawn from the seed itself, so that the random numbers after it stay the same.
                fragmented_max: eager_max as usize
                    * [0, 2, 5, 100][(mix(seed ^ 0xf4a6) % 4) as usize],
                operations_max: random.between(profile.operations_max),
                nic_threshold: random.pick(&[0, 0, 16, 200]),
                source_bits: TagLayout::MPI.source_mask(),
                credit: credit(profile, random),
                departed_max: 1024,
                seed: mix(seed),
            },
            wire: WireConfig {
                message_max: eager_max + 16,
                // A NIC's list takes none.
                fragments: profile.nic.is_none(),
                capacity: random.between(profile.capacity),
                delay_max: random.between(profile.delay_max),
                delayed_per_mille: profile.delayed_per_mille,
                refused_per_mille: profile.refused_per_mille,
                exposures_max: random.between(profile.exposures_max),
                accesses_per_mille: 0,
                calls_per_mille: 0,
                accesses_at_once: 1,
                // Drawn apart, so that the random numbers of other profiles stay the same.
                machines: Random::stream(seed, 7).between(profile.machines),
                seed: mix(seed ^ 0x77),
            },
        }
    }
}

fn credit(profile: &Profile, random: &mut Random) -> CreditConfig {
    let amount =
        |messages: u32, bytes: u32| Amount { messages: messages.into(), bytes: bytes.into() };
    if random.per_mille(profile.tiny_credit_per_mille) {
        let pool = amount(random.below_u32(40), random.below_u32(2000));
        let first = amount(random.below_u32(6), random.below_u32(300));
        return CreditConfig {
            pool,
            first,
            peer_max: amount(random.below_u32(20), random.below_u32(1000)),
        };
    }
    CreditConfig {
        pool: amount(4096, 1 << 20),
        first: amount(64, 16 * 1024),
        peer_max: amount(1024, 1 << 18),
    }
}
