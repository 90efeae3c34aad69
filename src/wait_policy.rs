//! How blocking calls wait.

/// How a blocking call waits: it polls, then polls and yields the processor, then sleeps.
///
/// Each phase lasts that many polls without result; a poll takes some 10 ns. Where more threads
/// want processors than there are, waits notice it and poll less; see
/// [`adapts`](#structfield.adapts).
///
/// Fields may be added: begin with `WaitPolicy::default()` or [`WaitPolicy::SLEEP`], and set fields
/// by the methods named after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitPolicy {
    /// Polls before the first yield. Any number; default: 20,000, some 200 µs, or 0 if the machine
    /// has one processor.
    pub spin: u32,
    /// Polls, each after a yield, before the first sleep. Any number; default: 2,000.
    pub yields: u32,
    /// Whether to sleep at all. A sleeping worker costs no processor time, and some microseconds to
    /// wake; its peers pay for the wake-up call. Default: `true`.
    pub sleep: bool,
    /// Whether waits learn. A wait that notices that other threads want its processor, since one
    /// ran during a yield, polls 256 times at most, yields 64 times at most, and sleeps; later
    /// waits of the worker do the same, 16 of them at first, twice as many each time that polling
    /// was tried again in vain, 4096 at most. While most of these waits are not ended by their
    /// polls, only one in 16 polls. `false`: all waits keep `spin` and `yields`. No effect with a
    /// `spin` of 1024 or less. Default: `true`.
    pub adapts: bool,
}

impl WaitPolicy {
    /// Sleeps at once.
    pub const SLEEP: WaitPolicy = WaitPolicy { spin: 0, yields: 0, sleep: true, adapts: true };

    /// Sets [`spin`](#structfield.spin).
    #[must_use]
    pub const fn spin(mut self, spin: u32) -> Self {
        self.spin = spin;
        self
    }

    /// Sets [`yields`](#structfield.yields).
    #[must_use]
    pub const fn yields(mut self, yields: u32) -> Self {
        self.yields = yields;
        self
    }

    /// Sets [`sleep`](#structfield.sleep).
    #[must_use]
    pub const fn sleep(mut self, sleep: bool) -> Self {
        self.sleep = sleep;
        self
    }

    /// Sets [`adapts`](#structfield.adapts).
    #[must_use]
    pub const fn adapts(mut self, adapts: bool) -> Self {
        self.adapts = adapts;
        self
    }
}

impl Default for WaitPolicy {
    fn default() -> Self {
        // The processors of the machine, not the affinity mask of this process: a process that is
        // pinned to one of many processors has its peers on the others.
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let alone = online.is_ok_and(|processors| processors.trim() == "0");
        let spin = if alone { 0 } else { 20_000 };
        WaitPolicy { spin, yields: 2_000, sleep: true, adapts: true }
    }
}
