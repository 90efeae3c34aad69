//! The device's asynchronous events: what they end, and what they tell.
//!
//! A failed queue pair ends one connection. A failed queue ends all that it serves, and the device
//! makes no connection any more. A port that got another address leaves connections as they are,
//! but nobody can connect to the address that was given out, nor be reached from it. Where the row
//! of the worker's partition key has another key, peers in the old partition are out of reach: the
//! devices drop packets in silence.

use tagmatch_rdma_core_sys as sys;

use super::Verbs;
use super::context::AsyncEvent;
use super::failure;
use super::gid;

const QUEUE_PAIR: &str = "the device has put its queue pair into error (IBV_EVENT_QP_FATAL)";
const DEVICE: &str = "the device is lost (IBV_EVENT_DEVICE_FATAL)";
const COMPLETION_QUEUE: &str = "the completion queue has failed (IBV_EVENT_CQ_ERR)";
const RECEIVE_QUEUE: &str = "the shared receive queue has failed (IBV_EVENT_SRQ_ERR)";
const LIST: &str = "the queue pair of the NIC's list has failed (IBV_EVENT_QP_FATAL)";
const DATAGRAMS: &str = "the queue pair for datagrams has failed (IBV_EVENT_QP_FATAL)";
const OTHER_LID: &str =
    "the port has another LID than this worker's address says: make the worker anew";
const OTHER_GID: &str =
    "the port has another GID than this worker's address says: make the worker anew";
const OTHER_PARTITION: &str =
    "the port has another partition key in this worker's row of the table: make the worker anew";

impl Verbs {
    /// Handles the asynchronous events that wait.
    pub(super) fn take_async_events(&mut self) {
        while let Some(event) = self.context.next_async_event() {
            match event {
                AsyncEvent::QueuePair { number, is_access_error } => {
                    self.queue_pair_failed(number, is_access_error);
                }
                AsyncEvent::DeviceLost => self.fail_device(DEVICE),
                AsyncEvent::CompletionQueue => self.fail_device(COMPLETION_QUEUE),
                AsyncEvent::ReceiveQueue(srq) => {
                    if self.receives.srq().is(srq) {
                        self.receives_failed(RECEIVE_QUEUE);
                    } else if self.fins.srq().is(srq) {
                        self.fins_failed();
                    }
                }
                AsyncEvent::Port { number, event_type } if number == self.port.number => {
                    self.port_changed(event_type);
                }
                AsyncEvent::Port { .. } | AsyncEvent::Other => {}
            }
        }
    }

    fn queue_pair_failed(&mut self, number: u32, is_access_error: bool) {
        match self.by_qp.get(&number).copied() {
            Some(peer) if is_access_error => {
                self.end_for_violation(peer, "a READ of memory that isn't exposed");
            }
            Some(peer) => self.lose_peer(peer, failure::of_own_end(QUEUE_PAIR)),
            None if number == self.datagrams.qp_num() => self.make_no_connections(DATAGRAMS),
            // The driver's own queue pair, by which the list is changed.
            None if self.list.is_some() => self.receives_failed(LIST),
            None => {}
        }
    }

    /// No connection is made any more, and those that are being made end.
    fn make_no_connections(&mut self, what: &'static str) {
        log::error!("{}: {what}", self.context.name);
        self.impairment.failure.get_or_insert(what);
        for peer in self.connecting.clone() {
            self.fail_connecting(peer, failure::of_own_end(what));
        }
    }

    /// The device completes nothing any more.
    fn fail_device(&mut self, what: &'static str) {
        self.impairment.is_mute = true;
        self.receives_failed(what);
    }

    /// All connections end. Their queue pairs are in error before the list gives up its buffers, so
    /// nothing is written to these.
    fn receives_failed(&mut self, what: &'static str) {
        self.make_no_connections(what);
        self.lose_all_peers(failure::of_own_end(what));
        if let Some(list) = &mut self.list {
            list.lose();
        }
    }

    /// FINs arrive on connections with two queue pairs.
    fn fins_failed(&mut self) {
        if self.list.is_some() {
            return self.receives_failed(RECEIVE_QUEUE);
        }
        for peer in self.up.clone() {
            if self.has_two_pairs(peer) {
                self.lose_peer(peer, failure::of_own_end(RECEIVE_QUEUE));
            }
        }
    }

    /// The port is down or up, or may have got another address.
    fn port_changed(&mut self, event_type: sys::ibv_event_type) {
        let context = self.context.clone();
        let device = &context.name;
        let port = self.port.number;
        match event_type {
            sys::IBV_EVENT_PORT_ERR => {
                let longest = self.config.silence_max();
                return log::warn!(
                    "{device}, port {port} is down (IBV_EVENT_PORT_ERR): its connections end \
                     unless it comes back, within {longest:?} at the latest"
                );
            }
            sys::IBV_EVENT_PORT_ACTIVE => log::info!("{device}, port {port} is up again"),
            sys::IBV_EVENT_LID_CHANGE => log::info!("{device}, port {port}: IBV_EVENT_LID_CHANGE"),
            sys::IBV_EVENT_GID_CHANGE => log::info!("{device}, port {port}: IBV_EVENT_GID_CHANGE"),
            sys::IBV_EVENT_PKEY_CHANGE => {
                log::info!("{device}, port {port}: IBV_EVENT_PKEY_CHANGE")
            }
            sys::IBV_EVENT_CLIENT_REREGISTER => {
                log::info!("{device}, port {port}: IBV_EVENT_CLIENT_REREGISTER");
            }
            _ => return,
        }
        let was_stale = self.impairment.stale;
        self.impairment.stale = self.stale_part();
        if let Some(what) = self.impairment.stale
            && was_stale.is_none()
        {
            let connections = if what == OTHER_PARTITION {
                "Its connections end unless the peers' rows change alike"
            } else {
                "What is connected stays so"
            };
            log::warn!("{device}, port {port}: {what}. {connections}");
        }
    }

    /// What the address that was given out says wrong of the port.
    fn stale_part(&mut self) -> Option<&'static str> {
        let port = self.context.port(self.port.number).ok()?;
        if port.lid != self.own.lid {
            return Some(OTHER_LID);
        }
        // Rows of RoCE's table may change their places.
        match gid::index_of(&self.context, self.port.number, &port, &self.port.gid) {
            Some(index) => self.port.gid.index = index,
            None => return Some(OTHER_GID),
        }
        let is_kept = self.port.partition.is_kept(&self.context, self.port.number, &port);
        (!is_kept).then_some(OTHER_PARTITION)
    }
}
