//! An audit of the device and its NIC, for tests: what was taken is back, and what is written down
//! twice agrees.

use tagmatch_device::Device;

use crate::device::Model;
use crate::transfers::Work;

impl<D: Device> Model<D> {
    /// In a build with debug assertions: panics if the books are wrong. To be asked between calls.
    /// Linear in everything.
    pub(crate) fn audit(&self) {
        if cfg!(debug_assertions) && !std::thread::panicking() {
            let wrong = self.errors();
            assert!(wrong.is_empty(), "an audit of the model NIC: {}", wrong.join("; "));
        }
    }

    fn errors(&self) -> Vec<String> {
        let mut wrong = self.nic.slots.audit();
        wrong.extend(self.ordinary_buffers());
        wrong.extend(self.entry_buffers());
        // Each transfer that has started is waiting, being read, failed, or owes a FIN.
        let is_transfer = |work: &&Work| !matches!(work, Work::Broken { .. });
        let asked = self.nic.work.iter().filter(is_transfer).count();
        let reads = self.entries.iter().filter(|entry| entry.reads_from.is_some()).count();
        let done = asked + reads + self.failed_reads.len() + self.fins.len();
        let started = self.nic.transfers.started();
        if started != done {
            wrong.push(format!("{started} steps of transfers have started, {done} are under way"));
        }
        wrong
    }

    /// Each ordinary buffer is posted, or has a message, or is lent to the caller.
    fn ordinary_buffers(&self) -> Option<String> {
        let posted = self.nic.ordinary.iter().map(|(wr_id, _)| *wr_id);
        let lent = self.lent.iter().map(|wr_id| *wr_id as u64);
        let mut found: Vec<u64> = posted.chain(self.nic.queues.ordinary()).chain(lent).collect();
        found.sort_unstable();
        let is_right = found.iter().copied().eq(0..self.buffers.len() as u64);
        let count = self.buffers.len();
        (!is_right).then(|| format!("of {count} ordinary buffers, these are known: {found:?}"))
    }

    /// A buffer is in an entry, or is being read into.
    fn entry_buffers(&self) -> Vec<String> {
        let twice = self.entries.iter().filter(|of| of.buffer.is_some() && of.reads_from.is_some());
        twice.map(|of| format!("entry {} has its buffer while it is read into", of.entry)).collect()
    }
}
