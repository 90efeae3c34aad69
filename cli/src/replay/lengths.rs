//! Lengths of a trace, brought down to what a replay can hold in memory.
//!
//! All that a length decides is whether a message is longer than its receive, how it is sent and
//! whether a NIC is worth it. So lengths up to [`kept_max`] stay as they are, and longer ones keep
//! their order: the shortest of them becomes `kept_max + 1`, the next `kept_max + 2`, and so on.

use tagmatch::Config;

use super::engine::{Script, Step};

/// The longest length in bytes that stays as it is: a worker sends longer messages as a rendezvous,
/// and offers all receives from here on to the NIC. (Real NICs stop at some GiB, which no trace's
/// replay could hold.)
fn kept_max() -> u64 {
    Config::default().eager_max as u64
}

/// From a trace's lengths to bytes.
pub(super) struct Lengths {
    kept_max: u64,
    /// Those above, in order, each once.
    long: Vec<u64>,
}

impl Lengths {
    pub(super) fn new(script: &Script) -> Self {
        let received = script.steps.iter().filter_map(|step| match *step {
            Step::Mrecv { len, .. } => Some(len),
            _ => None,
        });
        let all = script.lens.iter().copied().chain(received);
        let kept_max = kept_max();
        let mut long: Vec<u64> = all.filter(|len| *len > kept_max).collect();
        long.sort_unstable();
        long.dedup();
        Self { kept_max, long }
    }

    /// Bytes for a length of the trace.
    pub(super) fn bytes(&self, len: u64) -> usize {
        let bytes = if len <= self.kept_max {
            len
        } else {
            self.kept_max + 1 + self.long.partition_point(|long| *long < len) as u64
        };
        usize::try_from(bytes).expect("a few bytes more than a worker sends at once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn long_lengths_keep_their_order_short_ones_their_bytes() {
        let lens = [0, 1, 1024, 8192, 8193, 1 << 20, u64::MAX - 1, u64::MAX];
        let ops = "recv 1 0 0 0 0\nrecv 2 0 0 0 1\nmsg 3 0 1 1 1024\nmsg 4 0 1 1 8192\n\
                   msg 5 0 1 1 1048576\nmsg 6 0 1 1 18446744073709551615\nmprobe 7 0 1 1\n\
                   mrecv 7 18446744073709551614\nrecv 8 0 0 0 8193\nrecv 9 0 0 0 8193\n";
        let trace = Trace::parse(format!("tagtrace 1\n{ops}").as_bytes()).unwrap();
        let lengths = Lengths::new(&Script::new(&trace));
        let bytes = lens.map(|len| lengths.bytes(len));
        assert_eq!(bytes, [0, 1, 1024, 8192, 8193, 8194, 8195, 8196]);
    }
}
