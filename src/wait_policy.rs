//! How blocking calls wait.

/// How a blocking call waits: it polls, then polls and yields the processor, then sleeps.
///
/// Each phase lasts that many polls without result; a poll takes some 10 ns. The default suits one
/// thread per core. A worker doesn't know how many processes share its processors. Where more
/// threads wait than there are processors, 4 for `spin` and 64 for `yields` suit; the communicators
/// of `tagmatch-comm` choose these themselves.
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
}

impl WaitPolicy {
    /// Sleeps at once.
    pub const SLEEP: WaitPolicy = WaitPolicy { spin: 0, yields: 0, sleep: true };

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
}

impl Default for WaitPolicy {
    fn default() -> Self {
        // The processors of the machine, not the affinity mask of this process: a process that is
        // pinned to one of many processors has its peers on the others.
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let alone = online.is_ok_and(|processors| processors.trim() == "0");
        WaitPolicy { spin: if alone { 0 } else { 20_000 }, yields: 2_000, sleep: true }
    }
}
