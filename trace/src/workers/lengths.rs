//! Shorter lengths in place of a trace's, so that a replay fits into memory.
//!
//! A length decides whether a message is longer than its receive's buffer, how the message is sent,
//! and whether a receive is worth a place in a NIC's list. So lengths up to a bound stay as they
//! are. Longer ones keep their order: the shortest of them becomes one byte more than the bound,
//! the next one two bytes more, and so on.

use tagmatch::Config;

use crate::format::TraceOp;
use crate::trace::Trace;

/// Bytes in place of the lengths of a trace.
pub(super) struct ShortLengths {
    /// The greatest length that stays as it is. A worker sends longer messages as a rendezvous, and
    /// offers all longer receives to the NIC. (Real NICs fill buffers up to some GiB only, which no
    /// replay could have.)
    kept_max: u64,
    /// The lengths above, in order, each once.
    long: Vec<u64>,
}

impl ShortLengths {
    pub(super) fn new(trace: &Trace) -> Self {
        let received = trace.ops.iter().filter_map(|op| match *op {
            TraceOp::Mrecv { len, .. } => Some(len),
            _ => None,
        });
        let all = trace.lens.iter().copied().chain(received);
        let kept_max = Config::default().eager_max as u64;
        let mut long: Vec<u64> = all.filter(|len| *len > kept_max).collect();
        long.sort_unstable();
        long.dedup();
        Self { kept_max, long }
    }

    /// Bytes in place of a length of the trace.
    pub(super) fn bytes(&self, len: u64) -> usize {
        let bytes = if len <= self.kept_max {
            len
        } else {
            self.kept_max + 1 + self.long.partition_point(|long| *long < len) as u64
        };
        usize::try_from(bytes).expect("a few bytes more than a worker sends eagerly")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lengths_keep_their_order_and_short_ones_their_bytes() {
        let lens = [0, 1, 1024, 8192, 8193, 1 << 20, u64::MAX - 1, u64::MAX];
        let ops = "recv 1 0 0 0 0\nrecv 2 0 0 0 1\nmsg 3 0 1 1 1024\nmsg 4 0 1 1 8192\n\
                   msg 5 0 1 1 1048576\nmsg 6 0 1 1 18446744073709551615\nmprobe 7 0 1 1\n\
                   mrecv 7 18446744073709551614\nrecv 8 0 0 0 8193\nrecv 9 0 0 0 8193\n";
        let trace = Trace::parse(format!("tagtrace 1\n{ops}").as_bytes()).unwrap();
        let lengths = ShortLengths::new(&trace);
        let bytes = lens.map(|len| lengths.bytes(len));
        assert_eq!(bytes, [0, 1, 1024, 8192, 8193, 8194, 8195, 8196]);
    }
}
