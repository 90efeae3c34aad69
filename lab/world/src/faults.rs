//! Which calls fail, and how.

use std::collections::BTreeMap;

use tagmatch_testkit::random::Random;

/// A call that the world answers, or lets fail before the kernel answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "named after the calls")]
pub enum Call {
    Accept,
    Bind,
    Connect,
    EpollAdd,
    EpollCreate,
    EpollWait,
    EventFd,
    GetRandom,
    Listen,
    MemFd,
    Map,
    Name,
    PeerName,
    PidFd,
    Receive,
    Send,
    SetOption,
    Socket,
    SocketPair,
    TimerCreate,
    Truncate,
}

impl Call {
    /// The errors that pass.
    fn passing(self) -> &'static [i32] {
        match self {
            Call::Accept => &[
                libc::EAGAIN,
                libc::EINTR,
                libc::EMFILE,
                libc::ENFILE,
                libc::ENOBUFS,
                libc::ENOMEM,
            ],
            Call::Connect => &[libc::EAGAIN, libc::EADDRNOTAVAIL],
            Call::EpollAdd => &[libc::ENOMEM, libc::ENOSPC],
            Call::EpollWait | Call::GetRandom => &[libc::EINTR],
            Call::Receive => &[libc::EAGAIN, libc::EINTR, libc::ENOMEM],
            Call::Send => &[libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENOMEM],
            Call::Socket => &[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM],
            _ => &[],
        }
    }

    /// All errors that the manual pages give and that no bug of the caller causes.
    #[must_use]
    pub fn errors(self) -> &'static [i32] {
        match self {
            Call::Accept => &[
                libc::EAGAIN,
                libc::ECONNABORTED,
                libc::EINTR,
                libc::EMFILE,
                libc::ENFILE,
                libc::ENOBUFS,
                libc::ENOMEM,
                libc::EPROTO,
                libc::EPERM,
            ],
            Call::Bind => &[libc::EADDRINUSE, libc::EACCES, libc::ENOMEM],
            Call::Connect => &[
                libc::EADDRNOTAVAIL,
                libc::EAGAIN,
                libc::ECONNREFUSED,
                libc::EINTR,
                libc::ENETUNREACH,
                libc::ETIMEDOUT,
                libc::EPERM,
            ],
            Call::EpollAdd => &[libc::ENOMEM, libc::ENOSPC],
            Call::EpollCreate | Call::EventFd | Call::MemFd | Call::PidFd | Call::TimerCreate => {
                &[libc::EMFILE, libc::ENFILE, libc::ENOMEM]
            }
            Call::EpollWait => &[libc::EINTR],
            Call::GetRandom => &[libc::EINTR, libc::ENOSYS],
            Call::Listen => &[libc::EADDRINUSE],
            Call::Map => &[libc::ENOMEM, libc::ENFILE],
            Call::Name | Call::PeerName => &[libc::ENOBUFS],
            Call::Receive => {
                &[libc::EAGAIN, libc::EINTR, libc::ENOMEM, libc::ECONNRESET, libc::ETIMEDOUT]
            }
            Call::Send => &[
                libc::EAGAIN,
                libc::EINTR,
                libc::ENOBUFS,
                libc::ENOMEM,
                libc::ECONNRESET,
                libc::EPIPE,
            ],
            Call::SetOption => &[libc::ENOPROTOOPT, libc::ENOMEM],
            Call::Socket | Call::SocketPair => {
                &[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EACCES]
            }
            Call::Truncate => &[libc::ENOSPC, libc::EINTR],
        }
    }
}

/// One call of a scenario, and the error that it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The call.
    pub call: Call,
    /// Its number among the calls of its kind, from 0.
    pub number: usize,
    /// The error.
    pub errno: i32,
}

impl Failure {
    /// Whether the error passes: a program goes on as if nothing was.
    #[must_use]
    pub fn passes(self) -> bool {
        self.call.passing().contains(&self.errno)
    }
}

/// How badly the system answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// In how many of 1000 calls a passing error is returned.
    pub errors_per_mille: u32,
    /// In how many of 1000 calls of `epoll_wait(2)` a ready descriptor is reported later, or one is
    /// reported though it isn't ready.
    pub events_per_mille: u32,
    /// How many bytes a call takes or gives at most, 0 for any number.
    pub piece_max: usize,
    /// One call that fails.
    pub failure: Option<Failure>,
}

/// The faults of a world, and what was called so far.
pub(crate) struct FaultState {
    pub(crate) faults: Faults,
    /// How many calls of each kind there were.
    pub(crate) counts: BTreeMap<Call, usize>,
}

impl FaultState {
    pub(crate) fn new(faults: Faults) -> Self {
        FaultState { faults, counts: BTreeMap::new() }
    }

    /// The error that this call returns, if it is to fail.
    pub(crate) fn strike(&mut self, call: Call, random: &mut Random) -> Result<(), i32> {
        let count = self.counts.entry(call).or_default();
        let number = *count;
        *count += 1;
        if let Some(failure) = self.faults.failure
            && (failure.call, failure.number) == (call, number)
        {
            return Err(failure.errno);
        }
        let passing = call.passing();
        if !passing.is_empty() && random.per_mille(self.faults.errors_per_mille) {
            return Err(random.pick(passing));
        }
        Ok(())
    }

    /// How many of `length` bytes a call takes or gives.
    pub(crate) fn piece(&self, length: usize, random: &mut Random) -> usize {
        if length == 0 {
            return 0;
        }
        match self.faults.piece_max {
            0 => length,
            most => 1 + random.index(most.min(length)),
        }
    }
}
