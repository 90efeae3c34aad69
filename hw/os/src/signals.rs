//! Signals, which threads of this crate's users leave to the program's own threads.

/// Blocks all signals on this thread as long as it lives.
pub struct AllSignalsBlocked {
    before: libc::sigset_t,
}

impl AllSignalsBlocked {
    /// Blocks them. A thread that is started meanwhile inherits that, for its whole life.
    #[allow(clippy::new_without_default, reason = "it changes the thread")]
    pub fn new() -> Self {
        // SAFETY: all zeros is a valid set of signals, and both sets live through the calls.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            AllSignalsBlocked { before }
        }
    }
}

impl Drop for AllSignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `new`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}
