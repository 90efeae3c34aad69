//! A host for the bare NIC: buffers in memory, and READs that return a pattern.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::collections::HashMap;

use tagmatch_device::tm::{Opcode, Rvh, TMH_BYTES, Tmh};
use tagmatch_model::{
    Arrival, Completion, HEADERS_BYTES, Handle, Knobs, ModelConfig, Nic, Operation, OperationKind,
    PostError, QueuePair, Verdict, Work,
};

/// Bytes in an ordinary buffer.
pub const ORDINARY_BYTES: usize = 4096;

pub struct Host {
    pub nic: Nic,
    /// The contents of the buffers of entries, by `recv_wr_id`.
    pub entries: HashMap<u64, Vec<u8>>,
    pub ordinary: HashMap<u64, Vec<u8>>,
    handles: HashMap<Handle, u64>,
    /// Queue pair and bytes of each FIN.
    pub fins: Vec<(QueuePair, Vec<u8>)>,
    /// Queue pairs that failed.
    pub broken: Vec<QueuePair>,
    pub reads_fail: bool,
    /// Bytes in the buffer of the next entry.
    pub room: usize,
}

pub fn with(knobs: Knobs) -> Host {
    Host::new(&ModelConfig::default().knobs(knobs))
}

impl Host {
    /// A host with 66 ordinary buffers, twice what the NIC requires.
    pub fn new(config: &ModelConfig) -> Host {
        let mut host = Host {
            nic: Nic::new(config).unwrap(),
            entries: HashMap::new(),
            ordinary: HashMap::new(),
            handles: HashMap::new(),
            fins: Vec::new(),
            broken: Vec::new(),
            reads_fail: false,
            room: 1024,
        };
        for wr_id in 0..66 {
            host.nic.post_receive(wr_id, ORDINARY_BYTES as u64);
        }
        host
    }

    pub fn try_add(&mut self, wr_id: u64, tag: u64, mask: u64, count: u16) -> Added {
        let length = self.room as u64;
        let kind = OperationKind::Add { recv_wr_id: wr_id, tag, mask, elements: 1, length };
        let operation =
            Operation { wr_id: wr_id + 1000, signalled: true, unexpected_count: Some(count), kind };
        let handle = self.nic.post(operation)?.unwrap();
        self.entries.insert(wr_id, vec![0; self.room]);
        self.handles.insert(handle, wr_id);
        Ok(handle)
    }

    /// Adds an entry for exactly this tag.
    pub fn add(&mut self, wr_id: u64, tag: u64, count: u16) -> Handle {
        self.try_add(wr_id, tag, u64::MAX, count).unwrap()
    }

    pub fn delete(&mut self, handle: Handle, signalled: bool, count: u16) -> Result<(), PostError> {
        let kind = OperationKind::Delete { handle };
        let unexpected_count = Some(count);
        self.nic.post(Operation { wr_id: 7, signalled, unexpected_count, kind }).map(drop)
    }

    pub fn sync(&mut self, signalled: bool, count: u16) -> Result<(), PostError> {
        let kind = OperationKind::Sync;
        let unexpected_count = Some(count);
        self.nic.post(Operation { wr_id: 8, signalled, unexpected_count, kind }).map(drop)
    }

    /// Gives a message to the NIC, and stores its bytes where the NIC says.
    pub fn arrive(&mut self, queue_pair: u32, bytes: &[u8], immediate: Option<u32>) -> Verdict {
        let mut head = [0; HEADERS_BYTES];
        let known = bytes.len().min(HEADERS_BYTES);
        head[..known].copy_from_slice(&bytes[..known]);
        let queue_pair = QueuePair(queue_pair);
        let length = bytes.len() as u64;
        let verdict = self.nic.arrive(&Arrival { queue_pair, length, head, immediate });
        match verdict {
            Verdict::Ordinary { wr_id } => {
                self.ordinary.insert(wr_id, bytes.to_vec());
            }
            Verdict::Payload { recv_wr_id, .. } => {
                let payload = &bytes[TMH_BYTES..];
                self.entries.get_mut(&recv_wr_id).unwrap()[..payload.len()]
                    .copy_from_slice(payload);
            }
            Verdict::Headers { recv_wr_id, .. } => {
                self.entries.get_mut(&recv_wr_id).unwrap()[..HEADERS_BYTES].copy_from_slice(&head);
            }
            Verdict::Rendezvous | Verdict::NotReady | Verdict::Dropped => {}
        }
        verdict
    }

    pub fn eager(&mut self, queue_pair: u32, tag: u64, payload: &[u8]) -> Verdict {
        self.arrive(queue_pair, &eager(tag, payload), None)
    }

    /// Does the work that the NIC asks for.
    pub fn work(&mut self) {
        while let Some(work) = self.nic.next_work() {
            match work {
                Work::Read { handle, remote, .. } => {
                    let recv_wr_id = self.handles[&handle];
                    let read = exposed(remote.va, remote.len as usize);
                    self.entries.get_mut(&recv_wr_id).unwrap()[..read.len()].copy_from_slice(&read);
                    self.nic.read_done(handle, !self.reads_fail);
                }
                Work::Fin { handle, queue_pair, headers, length } => {
                    self.fins.push((queue_pair, headers[..length].to_vec()));
                    self.nic.fin_done(handle, true);
                }
                Work::Broken { queue_pair, .. } => self.broken.push(queue_pair),
            }
        }
    }

    /// Ticks until the NIC has no work left, and returns the completions.
    pub fn completions(&mut self) -> Vec<Completion> {
        let mut seen = Vec::new();
        for _ in 0..100_000 {
            self.work();
            seen.extend(std::iter::from_fn(|| self.nic.poll()));
            if !self.nic.has_work() {
                return seen;
            }
            self.nic.tick();
        }
        panic!("the NIC never comes to rest");
    }

    pub fn assert_no_faults(&self) {
        assert_eq!(self.nic.faults(), []);
    }
}

/// The handle of an entry, or why there is none.
pub type Added = Result<Handle, PostError>;

/// The bytes that a peer exposes at an address.
pub fn exposed(va: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (va.wrapping_add(at).wrapping_mul(167) >> 3).to_le_bytes()[0])
        .collect()
}

pub fn eager(tag: u64, payload: &[u8]) -> Vec<u8> {
    let app_ctx = !u32::try_from(tag & 0xffff).unwrap();
    [&Tmh { opcode: Opcode::Eager, app_ctx, tag }.emit()[..], payload].concat()
}

pub fn rendezvous(tag: u64, va: u64, len: u32) -> Vec<u8> {
    let app_ctx = !u32::try_from(tag & 0xffff).unwrap();
    let tmh = Tmh { opcode: Opcode::Rendezvous, app_ctx, tag };
    [&tmh.emit()[..], &Rvh { va, rkey: 5, len }.emit()[..]].concat()
}
