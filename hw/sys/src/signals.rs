//! Keeps the signal handlers of this process as they are while a library is loaded.
//!
//! Loading a library runs its constructors. Those of libucs take SIGILL, SIGSEGV, SIGBUS and SIGFPE
//! (`UCX_ERROR_SIGNALS`), perhaps another for debugging, and the alternate signal stack of the
//! thread. Those of libinfinipath, which libfabric of Debian 12 needs, also take SIGINT, SIGABRT
//! and SIGTERM. All of them belong to the program: Rust's own report of a stack overflow, a
//! debugger, a garbage collector.

/// Signals 1 to 31. These libraries don't use the real-time signals.
const SIGNALS: std::ops::Range<libc::c_int> = 1..32;

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

    /// Restores the handlers and the stack that have changed.
    pub fn restore(&self) {
        let now = Signals::now();
        for ((signal, before), (_, after)) in self.actions.iter().zip(&now.actions) {
            if before.sa_sigaction != after.sa_sigaction || before.sa_flags != after.sa_flags {
                // SAFETY: a handler that was installed before the library was loaded.
                unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
            }
        }
        if now.stack.ss_sp != self.stack.ss_sp || now.stack.ss_flags != self.stack.ss_flags {
            // SAFETY: the stack that this thread had before the library was loaded, or none.
            unsafe { libc::sigaltstack(&raw const self.stack, std::ptr::null_mut()) };
        }
    }
}
