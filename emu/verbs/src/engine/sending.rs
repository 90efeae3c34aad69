//! Queue pairs of the queue, and the NIC's READs and FINs on them.

use tagmatch_device::slab::Key;
use tagmatch_device::tm::Rvh;
use tagmatch_model::{Handle, QueuePair};
use tagmatch_rdma_core_sys::{IBV_QPS_ERR, IBV_QPS_RESET};

use super::Engine;
use super::pairs::{BegunRequest, Pair, PairChange};
use super::wire::{NicRequest, Segment, Wire};

impl<W: Wire> Engine<W> {
    /// Adds a queue pair that was made.
    pub(crate) fn add_pair(&mut self, number: u32, is_offloaded: bool) {
        self.pairs.insert(number, Pair::new(is_offloaded));
    }

    /// Follows a change of a queue pair.
    pub(crate) fn change_pair(&mut self, number: u32, change: PairChange) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.mtu = change.mtu.unwrap_or(pair.mtu);
        pair.reads_max = change.reads_max.or(pair.reads_max);
        pair.state = change.state.unwrap_or(pair.state);
        match change.state {
            Some(IBV_QPS_ERR) => {
                self.nic.queue_pair_down(QueuePair(number));
                self.begin_requests(number);
            }
            Some(IBV_QPS_RESET) => {
                self.nic.queue_pair_down(QueuePair(number));
                self.drop_requests(number);
                self.nic.forget(QueuePair(number));
            }
            _ => self.begin_requests(number),
        }
    }

    /// Puts a queue pair into error, as the NIC has decided.
    pub(super) fn break_pair(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.state = IBV_QPS_ERR;
        self.wire.break_pair(number);
        self.begin_requests(number);
    }

    /// Removes a queue pair that was destroyed.
    pub(crate) fn remove_pair(&mut self, number: u32) {
        self.change_pair(number, PairChange { state: Some(IBV_QPS_RESET), ..Default::default() });
        self.pairs.remove(&number);
        self.carry_out();
    }

    /// Whether queue pairs are on the queue.
    pub(crate) fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Reads the data of a rendezvous, in as many READs as the device needs.
    pub(super) fn read(&mut self, handle: Handle, queue_pair: QueuePair, remote: Rvh) {
        let pair = self.pairs.get(&queue_pair.0);
        let Some(_) = pair.filter(|pair| pair.is_offloaded && pair.reads_max != Some(0)) else {
            self.nic.fail(queue_pair, "a rendezvous on a queue pair that can't READ by itself");
            return self.nic.read_done(handle, false);
        };
        let held = &mut self.entries[handle.slot()];
        let step = self.sizes.read_max.max(1);
        held.reads = remote.len.div_ceil(step);
        held.are_reads_ok = true;
        let start = held.segment;
        for at in (0..remote.len).step_by(step as usize) {
            let into = Segment {
                address: start.address.wrapping_add(at.into()),
                length: step.min(remote.len - at),
                ..start
            };
            let address = remote.va.wrapping_add(at.into());
            self.queue(queue_pair.0, NicRequest::Read { handle, address, rkey: remote.rkey, into });
        }
    }

    /// Queues a request on its queue pair, and begins it if it can begin.
    pub(super) fn queue(&mut self, pair: u32, request: NicRequest) {
        match self.pairs.get_mut(&pair) {
            Some(state) => {
                state.requests.push_back(request);
                self.waiting.insert(pair);
                self.begin_requests(pair);
            }
            None => self.ended(request.handle(), request.is_fin(), false),
        }
    }

    /// Gives the device as many requests of a queue pair as it takes now.
    pub(super) fn begin_requests(&mut self, number: u32) {
        while let Some(pair) = self.pairs.get_mut(&number) {
            let Some(&request) = pair.requests.front().filter(|_| pair.is_ready()) else { break };
            let handle = request.handle();
            let is_fin = request.is_fin();
            let begun = BegunRequest { pair: number, handle, is_fin };
            let Ok(key) = self.in_flight.insert(begun, self.sizes.requests) else { return };
            let token = key.to_bits();
            pair.requests.pop_front();
            pair.under_way += 1;
            if !self.wire.begin(number, token, &request) {
                self.request_done(token, false);
            }
        }
        if self.pairs.get(&number).is_none_or(|pair| pair.requests.is_empty()) {
            self.waiting.remove(&number);
        }
    }

    /// Ends a request that the device has completed.
    pub(super) fn request_done(&mut self, token: u64, is_ok: bool) {
        let Some(begun) = self.in_flight.remove(Key::from_bits(token)) else { return };
        if let Some(pair) = self.pairs.get_mut(&begun.pair) {
            pair.under_way -= 1;
        }
        self.ended(begun.handle, begun.is_fin, is_ok);
        let next: Vec<u32> = self.waiting.iter().copied().collect();
        for pair in next {
            self.begin_requests(pair);
        }
    }

    fn ended(&mut self, handle: Handle, is_fin: bool, is_ok: bool) {
        if is_fin {
            return self.nic.fin_done(handle, is_ok);
        }
        let held = &mut self.entries[handle.slot()];
        if held.handle != Some(handle) {
            return;
        }
        held.reads = held.reads.saturating_sub(1);
        held.are_reads_ok &= is_ok;
        if held.reads == 0 {
            let is_ok = held.are_reads_ok;
            self.nic.read_done(handle, is_ok);
        }
    }

    /// Ends all requests of a queue pair as failed: the device has dropped them, and will not
    /// complete them.
    pub(super) fn drop_requests(&mut self, number: u32) {
        for key in self.in_flight.keys_where(|begun| begun.pair == number) {
            if let Some(begun) = self.in_flight.remove(key) {
                self.ended(begun.handle, begun.is_fin, false);
            }
        }
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.under_way = 0;
        for request in std::mem::take(&mut pair.requests) {
            self.ended(request.handle(), request.is_fin(), false);
        }
        self.waiting.remove(&number);
    }
}
