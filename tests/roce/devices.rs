//! The devices that the workers of these tests run on.

use std::fmt;
use std::time::Duration;

use tagmatch::tcp::TcpConfig;
use tagmatch::verbs::VerbsConfig;
use tagmatch::{AutoConfig, Config, DeviceConfig, HwTags, Secret, WaitPolicy, Worker};

/// What carries the messages of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Verbs,
    Tcp,
    /// Shared memory within a host, verbs between hosts. TCP is announced, and not used.
    ShmAndVerbs,
    /// Shared memory within a host, between hosts verbs with an emulated NIC that is offered all
    /// receives.
    ShmAndEmu,
    /// Shared memory within a host, TCP between hosts.
    ShmAndTcp,
}

impl Over {
    const ALL: [Over; 5] =
        [Over::Verbs, Over::Tcp, Over::ShmAndVerbs, Over::ShmAndEmu, Over::ShmAndTcp];

    pub fn has_shm(self) -> bool {
        !matches!(self, Over::Verbs | Over::Tcp)
    }

    pub fn has_verbs(self) -> bool {
        !matches!(self, Over::Tcp | Over::ShmAndTcp)
    }
}

/// How a worker is made. A process learns it from a word of its role.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub over: Over,
    /// As in [`VerbsConfig`].
    ack_timeout: u8,
}

/// For workers that must soon give up a peer whose device doesn't acknowledge: seven times 268 ms.
pub const HASTY: Setup = Setup { over: Over::Verbs, ack_timeout: 16 };
/// For workers that must not give it up soon: seven times one second.
pub const PATIENT: Setup = Setup { over: Over::Verbs, ack_timeout: 18 };

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.over, self.ack_timeout)
    }
}

impl Setup {
    pub fn over(self, over: Over) -> Self {
        Setup { over, ..self }
    }

    pub fn parse(word: &str) -> Self {
        let (name, ack_timeout) = word.split_once(':').unwrap();
        let over = Over::ALL.into_iter().find(|over| format!("{over:?}") == name).unwrap();
        Setup { over, ack_timeout: ack_timeout.parse().unwrap() }
    }

    pub fn worker(self) -> Worker {
        // It sleeps early, so that faults have to wake it, too.
        let wait = WaitPolicy::SLEEP.spin(0).yields(100);
        let config = Config::default().device(self.device()).wait(wait);
        let secret = Secret::from_bytes(b"the secret of these tests").ok();
        Worker::new(match self.over {
            Over::Verbs => config,
            Over::ShmAndEmu => config.hw_tags(HwTags::Emu).hw_tags_threshold(0).secret(secret),
            _ => config.secret(secret),
        })
        .unwrap()
    }

    fn device(self) -> DeviceConfig {
        // Without verbs, the worker is to find no RDMA device. With reordered packets, READs are
        // repeated after their rendezvous has ended, so memory has to linger.
        let verbs = VerbsConfig::default()
            .device((!self.over.has_verbs()).then(|| "none".to_owned()))
            .ack_timeout(Some(self.ack_timeout))
            .retry_count(Some(6))
            .keepalive(Duration::from_millis(500))
            .connect_timeout(Duration::from_secs(20))
            .linger(Duration::from_secs(2));
        let tcp = TcpConfig::default().connect_timeout(Duration::from_secs(20));
        match self.over {
            Over::Verbs => DeviceConfig::Verbs(verbs),
            Over::Tcp => DeviceConfig::Tcp(tcp),
            _ => DeviceConfig::Auto(AutoConfig::default().verbs(verbs).tcp(tcp)),
        }
    }
}
