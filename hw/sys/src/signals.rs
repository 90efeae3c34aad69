//! Keeps the signal handlers of this process as they are while a library is loaded.
//!
//! Loading a library runs its constructors. Those of libucs take SIGILL, SIGSEGV, SIGBUS and SIGFPE
//! (`UCX_ERROR_SIGNALS`), perhaps another for debugging, and the alternate signal stack of the
//! thread. Those of libinfinipath, which libfabric of Debian 12 needs, also take SIGINT, SIGABRT
//! and SIGTERM. All of them belong to the program: Rust's own report of a stack overflow, a
//! debugger, a garbage collector.

/// Signals 1 to 31. These libraries don't use the real-time signals.
const SIGNALS: std::ops::Range<libc::c_int> = 1..32;

/// The kernel's flag for an action with a way back from its handler.
const SA_RESTORER: libc::c_int = 0x0400_0000;

/// The handlers of this process and the alternate stack of this thread, to be restored later.
pub struct Signals {
    actions: Vec<(libc::c_int, libc::sigaction)>,
    stack: libc::stack_t,
}

impl Signals {
    /// The current handlers and the current stack.
    pub fn now() -> Self {
        // SAFETY: both structures may be zero. The calls fill them and change nothing else.
        unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut stack);
            let action = |signal| {
                let mut action: libc::sigaction = std::mem::zeroed();
                let answer = libc::sigaction(signal, std::ptr::null(), &raw mut action);
                (answer == 0).then_some((signal, action))
            };
            Signals { actions: SIGNALS.filter_map(action).collect(), stack }
        }
    }

    /// Whether all handlers and the stack of this thread are as they were.
    pub fn are_unchanged(&self) -> bool {
        let now = Signals::now();
        self.changed(&now).next().is_none() && !self.has_another_stack(&now)
    }

    /// Restores the handlers and the stack that have changed.
    pub fn restore(&self) {
        let now = Signals::now();
        for (signal, before) in self.changed(&now) {
            // SAFETY: a handler that was installed before the library was loaded.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
        if self.has_another_stack(&now) {
            // SAFETY: the stack that this thread had before the library was loaded, or none.
            unsafe { libc::sigaltstack(&raw const self.stack, std::ptr::null_mut()) };
        }
    }

    /// The actions that are others now.
    fn changed(&self, now: &Signals) -> impl Iterator<Item = &(libc::c_int, libc::sigaction)> {
        let facts = |action: &libc::sigaction| {
            // The C library adds the flag to each action that it sets.
            (action.sa_sigaction, action.sa_flags & !SA_RESTORER)
        };
        let both = self.actions.iter().zip(&now.actions);
        both.filter(move |(was, is)| facts(&was.1) != facts(&is.1)).map(|(was, _)| was)
    }

    fn has_another_stack(&self, now: &Signals) -> bool {
        now.stack.ss_sp != self.stack.ss_sp || now.stack.ss_flags != self.stack.ss_flags
    }
}
