//! Programs that use the device, without processes: their memory is an array, and each test writes
//! what libmlx5 would write.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tagmatch_model::ModelConfig;
use zerocopy::IntoBytes;

use super::array::{Array, BASE, LENGTH};
use crate::abi::{self, CreateCq, CreateQp, CreateSrq, ModifyQp, QpCapabilities, RegisterMemory};
use crate::boundary::{Answers, Call, Errno, Kept};
use crate::channel::Channel;
use crate::knobs::DeviceKnobs;
use crate::memory::Memory;
use crate::nic::{Fabric, Function, Inbox};
use crate::settings::Settings;

/// Where commands are written; what is below is for queues and data.
const COMMAND: u64 = BASE + LENGTH as u64 - 0x1_0000;

/// How calls of a program are answered.
#[derive(Default)]
pub(super) struct Caller {
    errno: Cell<Option<Errno>>,
    /// A signal interrupts each call before it is answered.
    pub(super) is_interrupted: Cell<bool>,
    descriptors: Cell<i32>,
    pub(super) kept: RefCell<Vec<std::os::fd::OwnedFd>>,
}

impl Answers for Caller {
    fn give(&self, _: u64, fd: BorrowedFd<'_>) -> io::Result<i32> {
        self.descriptors.set(self.descriptors.get() + 1);
        self.kept.borrow_mut().push(fd.try_clone_to_owned()?);
        Ok(99 + self.descriptors.get())
    }

    fn replace(&self, _: u64, _: i32, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn answer(&self, _: u64, errno: Errno) -> bool {
        self.errno.set(Some(errno));
        !self.is_interrupted.get()
    }

    fn keep(&self, _: &Channel) -> Option<Kept> {
        None
    }
}

/// An attribute of a command.
pub(super) enum Given {
    /// Data.
    In(u16, Vec<u8>),
    /// Room for an answer.
    Out(u16, u16),
    /// A handle, or a number; the answer may be one, too.
    Number(u16, u64),
}

pub(super) fn word(id: u16, value: u32) -> Given {
    Given::In(id, value.to_ne_bytes().to_vec())
}

/// A program with one open device.
pub(super) struct Program {
    pub(super) function: Function<Array>,
    pub(super) memory: Array,
    pub(super) caller: Caller,
    /// The device that commands are given to, and the descriptor of it: the context.
    pub(super) device: usize,
    pub(super) descriptor: i32,
    /// What queue pairs are like that are connected.
    pub(super) link: TestLink,
    free: u64,
    pub(super) pd: u32,
}

/// What a connection of a test is like.
#[derive(Clone, Copy)]
pub(super) struct TestLink {
    pub(super) pkey_index: u16,
    pub(super) access: u32,
    /// `enum ibv_mtu`.
    pub(super) mtu: u8,
    /// `max_rd_atomic` and `max_dest_rd_atomic`.
    pub(super) reads: u8,
    pub(super) reads_taken: u8,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    /// The GID of the peer's port, if the path has one.
    pub(super) gid: Option<[u8; 16]>,
}

impl Default for TestLink {
    fn default() -> Self {
        TestLink {
            pkey_index: 0,
            access: 15,
            mtu: 3,
            reads: 4,
            reads_taken: 4,
            timeout: 1,
            retries: 1,
            gid: None,
        }
    }
}

/// A completion queue of a test.
#[derive(Clone, Copy)]
pub(super) struct TestCq {
    pub(super) handle: u32,
    pub(super) at: u64,
    pub(super) record: u64,
    pub(super) size: u32,
    pub(super) seen: u32,
}

/// A queue pair of a test.
#[derive(Clone, Copy)]
pub(super) struct TestQp {
    pub(super) handle: u32,
    pub(super) number: u32,
    pub(super) sends: u64,
    receives: u64,
    pub(super) record: u64,
    pub(super) posted: u16,
    posted_receives: u16,
}

/// A shared receive queue of a test.
#[derive(Clone, Copy)]
pub(super) struct TestSrq {
    pub(super) handle: u32,
    at: u64,
    record: u64,
    posted: u16,
}

impl TestQp {
    /// The program begins its queues anew.
    pub(super) fn restart(&mut self) {
        (self.posted, self.posted_receives) = (0, 0);
    }
}

/// Places of each send queue and receive queue.
pub(super) const PLACES: u32 = 16;

pub(super) fn settings() -> Settings {
    let model = ModelConfig::default().slots(7);
    Settings {
        devices: vec![0],
        places: Vec::new(),
        subnets: 1,
        is_interruptible: false,
        model,
        knobs: DeviceKnobs::default(),
        ports: Vec::new(),
        faults: Vec::new(),
    }
}

impl Program {
    pub(super) fn new(fabric: &Arc<Fabric>, settings: &Settings, lockable: u64) -> Self {
        let memory = Array::new(lockable);
        let shared = Arc::new(settings.clone());
        let function = Function::new(memory.clone(), Arc::clone(fabric), Inbox::default(), shared);
        let caller = Caller::default();
        let mut program = Program {
            function,
            memory,
            caller,
            device: 0,
            descriptor: 3,
            link: TestLink::default(),
            free: BASE,
            pd: 0,
        };
        program.open().unwrap();
        program.pd = program.allocate_pd().unwrap();
        program
    }

    /// Memory that nothing else uses.
    pub(super) fn allocate(&mut self, length: u64) -> u64 {
        let at = self.free;
        self.free += length.next_multiple_of(4096);
        assert!(self.free <= COMMAND, "the test uses more memory than a program has");
        at
    }

    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write(&[(at, bytes)]).unwrap();
    }

    pub(super) fn get(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(at, &mut bytes).unwrap();
        bytes
    }

    /// Gives a command; the answers of its attributes, in order.
    pub(super) fn command(&mut self, method: u32, given: &[Given]) -> Result<Vec<Vec<u8>>, Errno> {
        let mut attributes = Vec::new();
        let mut data_at = COMMAND + 0x1000;
        let mut outs = Vec::new();
        for one in given {
            let (id, length, data) = match one {
                Given::In(id, bytes) if bytes.len() <= 8 => {
                    let mut data = [0; 8];
                    data[..bytes.len()].copy_from_slice(bytes);
                    (*id, bytes.len() as u16, u64::from_ne_bytes(data))
                }
                Given::In(id, bytes) => {
                    self.put(data_at, bytes);
                    (*id, bytes.len() as u16, data_at)
                }
                Given::Out(id, length) => (*id, *length, data_at),
                Given::Number(id, value) => (*id, 0, *value),
            };
            let place = COMMAND + 24 + attributes.len() as u64;
            outs.push(match one {
                Given::Out(_, length) => (data_at, usize::from(*length)),
                _ => (place + 8, 8),
            });
            data_at += u64::from(length).next_multiple_of(8);
            for half in [id, length, 1, 0] {
                attributes.extend_from_slice(&half.to_ne_bytes());
            }
            attributes.extend_from_slice(&data.to_ne_bytes());
        }
        let length = (24 + attributes.len()) as u16;
        let count = given.len() as u16;
        let mut header = Vec::new();
        for half in [length, (method >> 16) as u16, (method & 0xffff) as u16, count] {
            header.extend_from_slice(&half.to_ne_bytes());
        }
        header.resize(24, 0);
        self.put(COMMAND, &header);
        self.put(COMMAND + 24, &attributes);
        match self.repeat() {
            0 => Ok(outs.into_iter().map(|(at, length)| self.get(at, length)).collect()),
            errno => Err(errno),
        }
    }

    /// Gives the command that stands in memory, as a caller does again that was interrupted.
    pub(super) fn repeat(&mut self) -> Errno {
        let device = self.device;
        let call = Call { id: 1, thread: 1, fd: self.descriptor, device, at: COMMAND };
        self.function.call(&call, &self.caller);
        assert_eq!(self.function.audit(), [""; 0]);
        self.caller.errno.take().expect("the call is answered")
    }

    /// Withholds all memory until the lock is given up.
    pub(super) fn memory_lock(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.memory.withheld)
    }

    /// A command of `INVOKE_WRITE`.
    pub(super) fn write_command(
        &mut self,
        number: u32,
        input: &[u8],
        output: u16,
    ) -> Result<Vec<u8>, Errno> {
        let answers = self.command(
            abi::device::INVOKE_WRITE,
            &[
                word(abi::device::WRITE_CMD, number),
                Given::In(abi::device::CORE_IN, input.to_vec()),
                Given::Out(abi::device::CORE_OUT, output),
            ],
        )?;
        Ok(answers[2].clone())
    }

    pub(super) fn open(&mut self) -> Result<(), Errno> {
        let request = abi::ContextRequest {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            max_cqe_version: 1,
            lib_caps: 3,
            ..Default::default()
        };
        let given =
            [Given::In(abi::UHW_IN, request.as_bytes().to_vec()), Given::Out(abi::UHW_OUT, 72)];
        self.command(abi::device::GET_CONTEXT, &given)?;
        self.command(abi::async_event::ALLOC, &[Given::Number(0, 0)]).map(drop)
    }

    pub(super) fn allocate_pd(&mut self) -> Result<u32, Errno> {
        let answer = self.write_command(abi::write_command::ALLOC_PD, &[0; 16], 8)?;
        Ok(u32::from_ne_bytes(answer[..4].try_into().unwrap()))
    }

    /// Registers memory; its handle and key.
    pub(super) fn register(
        &mut self,
        at: u64,
        length: u64,
        access_flags: u32,
    ) -> Result<(u32, u32), Errno> {
        let request = RegisterMemory {
            start: at,
            length,
            hca_va: at,
            pd_handle: self.pd,
            access_flags,
            ..Default::default()
        };
        let number = abi::write_command::REG_MR;
        let answer = self.write_command(number, request.as_bytes(), 12)?;
        let word = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap());
        Ok((word(0), word(4)))
    }

    pub(super) fn create_cq(&mut self, size: u32, channel: Option<i32>) -> Result<TestCq, Errno> {
        let at = self.allocate(u64::from(size) * 64);
        let record = self.allocate(64);
        let uhw = CreateCq { buf_addr: at, db_addr: record, cqe_size: 64, ..CreateCq::default() };
        let mut given = vec![
            Given::Number(abi::cq::HANDLE, 0),
            word(abi::cq::CQE, size - 1),
            Given::In(abi::cq::USER_HANDLE, 0xc0_u64.to_ne_bytes().to_vec()),
            Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
            Given::Out(abi::UHW_OUT, 8),
        ];
        if let Some(channel) = channel {
            given.push(Given::Number(abi::cq::CHANNEL, channel as u64));
        }
        for place in 0..u64::from(size) {
            // An opcode that no completion has, as libmlx5 writes.
            self.put(at + place * 64 + 63, &[0xf0]);
        }
        let answers = self.command(abi::cq::CREATE, &given)?;
        let handle = u32::from_ne_bytes(answers[0][..4].try_into().unwrap());
        Ok(TestCq { handle, at, record, size, seen: 0 })
    }

    /// A shared receive queue, with a list of so many tags, or none.
    pub(super) fn create_srq(&mut self, tags: u32, cq: &TestCq) -> Result<TestSrq, Errno> {
        let at = self.allocate(64 * 32);
        let record = self.allocate(64);
        let uhw = CreateSrq { buf_addr: at, db_addr: record, uidx: 0x51, ..CreateSrq::default() };
        let kind = if tags > 0 { 2 } else { 0_u64 };
        let given = [
            Given::Number(abi::srq::HANDLE, 0),
            Given::Number(abi::srq::PD, self.pd.into()),
            Given::Number(abi::srq::CQ, cq.handle.into()),
            Given::In(abi::srq::TYPE, kind.to_ne_bytes().to_vec()),
            word(abi::srq::MAX_WR, 63),
            word(abi::srq::MAX_SGE, 1),
            word(abi::srq::MAX_NUM_TAGS, tags),
            Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
            Given::Out(abi::UHW_OUT, 8),
        ];
        let answers = self.command(abi::srq::CREATE, &given)?;
        let handle = u32::from_ne_bytes(answers[0][..4].try_into().unwrap());
        for place in 0..64_u16 {
            let next = (place + 1) % 64;
            self.put(at + u64::from(place) * 32 + 2, &next.to_be_bytes());
        }
        Ok(TestSrq { handle, at, record, posted: 0 })
    }

    pub(super) fn post_srq(&self, srq: &mut TestSrq, at: u64, length: u32, lkey: u32) {
        let place = srq.at + u64::from(srq.posted % 64) * 32 + 16;
        self.put(place, &segment(at, length, lkey));
        srq.posted += 1;
        self.put(srq.record, &u32::from(srq.posted).to_be_bytes());
    }

    pub(super) fn create_qp(
        &mut self,
        cq: &TestCq,
        srq: Option<&TestSrq>,
        kind: u32,
    ) -> Result<TestQp, Errno> {
        let at = self.allocate(u64::from(PLACES) * (16 + 64));
        let record = self.allocate(64);
        let own = if srq.is_some() { 0 } else { PLACES };
        let uhw = CreateQp {
            buf_addr: at,
            db_addr: record,
            sq_wqe_count: PLACES,
            rq_wqe_count: own,
            rq_wqe_shift: 4,
            uidx: 0x91,
            ..CreateQp::default()
        };
        let mut given = vec![
            Given::Number(abi::qp::HANDLE, 0),
            Given::Number(abi::qp::PD, self.pd.into()),
            Given::Number(abi::qp::SEND_CQ, cq.handle.into()),
            Given::Number(abi::qp::RECV_CQ, cq.handle.into()),
            word(abi::qp::TYPE, kind),
            Given::In(abi::qp::USER_HANDLE, 0x9b_u64.to_ne_bytes().to_vec()),
            Given::In(abi::qp::CAP, QpCapabilities::default().as_bytes().to_vec()),
            Given::Out(abi::qp::RESP_QP_NUM, 4),
            Given::In(abi::UHW_IN, uhw.as_bytes().to_vec()),
        ];
        if let Some(srq) = srq {
            given.push(Given::Number(abi::qp::SRQ, srq.handle.into()));
        }
        let answers = self.command(abi::qp::CREATE, &given)?;
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        let sends = at + u64::from(own) * 16;
        Ok(TestQp {
            handle: word(&answers[0]),
            number: word(&answers[7]),
            sends,
            receives: at,
            record,
            posted: 0,
            posted_receives: 0,
        })
    }

    pub(super) fn modify(&mut self, qp: &TestQp, change: ModifyQp) -> Result<(), Errno> {
        let change = ModifyQp { qp_handle: qp.handle, ..change };
        self.write_command(abi::write_command::MODIFY_QP, change.as_bytes(), 16).map(drop)
    }

    /// Brings a reliable queue pair up, towards another one. `rnr`: retries without a buffer.
    pub(super) fn connect(&mut self, qp: &TestQp, to: u32, rnr: u8) {
        use abi::qp_mask::*;
        let init = ModifyQp {
            attr_mask: STATE | PKEY_INDEX | PORT | ACCESS_FLAGS,
            qp_state: 1,
            port_num: 1,
            pkey_index: self.link.pkey_index,
            qp_access_flags: self.link.access,
            ..ModifyQp::default()
        };
        self.modify(qp, init).unwrap();
        let mut ready = ModifyQp {
            attr_mask: STATE
                | AV
                | PATH_MTU
                | DEST_QPN
                | RQ_PSN
                | MAX_DEST_RD_ATOMIC
                | MIN_RNR_TIMER,
            qp_state: 2,
            path_mtu: self.link.mtu,
            dest_qp_num: to,
            rq_psn: 0xff_fffe,
            max_dest_rd_atomic: self.link.reads_taken,
            min_rnr_timer: 1,
            ..ModifyQp::default()
        };
        (ready.dest.dlid, ready.dest.port_num) = (1, 1);
        if let Some(dgid) = self.link.gid {
            (ready.dest.dgid, ready.dest.is_global, ready.dest.sgid_index) = (dgid, 1, 1);
        }
        self.modify(qp, ready).unwrap();
        let send = ModifyQp {
            attr_mask: STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC,
            qp_state: 3,
            timeout: self.link.timeout,
            retry_cnt: self.link.retries,
            rnr_retry: rnr,
            sq_psn: 0xff_fffe,
            max_rd_atomic: self.link.reads,
            ..ModifyQp::default()
        };
        self.modify(qp, send).unwrap();
    }

    /// Posts a request: its segments behind the control segment.
    pub(super) fn post(&self, qp: &mut TestQp, opcode: u8, immediate: u32, rest: &[u8]) {
        let units = (16 + rest.len()).div_ceil(16) as u32;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(u32::from(qp.posted) << 8 | u32::from(opcode)).to_be_bytes());
        bytes.extend_from_slice(&(qp.number << 8 | units).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0x08]);
        bytes.extend_from_slice(&immediate.to_be_bytes());
        bytes.extend_from_slice(rest);
        for block in bytes.chunks(64) {
            let place = qp.sends + u64::from(u32::from(qp.posted) % PLACES) * 64;
            self.put(place, block);
            qp.posted = qp.posted.wrapping_add(1);
        }
        self.put(qp.record + 4, &u32::from(qp.posted).to_be_bytes());
    }

    pub(super) fn post_receive(&self, qp: &mut TestQp, at: u64, length: u32, lkey: u32) {
        let place = qp.receives + u64::from(u32::from(qp.posted_receives) % PLACES) * 16;
        self.put(place, &segment(at, length, lkey));
        qp.posted_receives = qp.posted_receives.wrapping_add(1);
        self.put(qp.record, &u32::from(qp.posted_receives).to_be_bytes());
    }

    /// Takes the completions that are there, as libmlx5 does: by their owner.
    pub(super) fn poll(&self, cq: &mut TestCq) -> Vec<Completed> {
        let mut found = Vec::new();
        loop {
            let place = cq.at + u64::from(cq.seen % cq.size) * 64;
            let bytes: [u8; 64] = self.get(place, 64).try_into().unwrap();
            let owner = bytes[63] & 1 != 0;
            if bytes[63] >> 4 == 0xf || owner != (cq.seen & cq.size != 0) {
                return found;
            }
            cq.seen += 1;
            self.put(cq.record, &cq.seen.to_be_bytes());
            found.push(Completed(bytes));
        }
    }

    /// Asynchronous events that were said: their types.
    pub(super) fn events(&self) -> Vec<u32> {
        let kept = self.caller.kept.borrow();
        let waiting = rustix::io::ioctl_fionread(&kept[0]).unwrap();
        let mut bytes = vec![0; usize::try_from(waiting).unwrap()];
        if !bytes.is_empty() {
            rustix::io::read(&kept[0], &mut bytes[..]).unwrap();
        }
        bytes.chunks(16).map(|one| u32::from_ne_bytes(one[8..12].try_into().unwrap())).collect()
    }
}

/// A completion that a program has taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed(pub(super) [u8; 64]);

impl Completed {
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    pub(super) fn opcode(&self) -> u8 {
        self.0[63] >> 4
    }

    pub(super) fn syndrome(&self) -> u8 {
        self.0[55]
    }

    pub(super) fn length(&self) -> u32 {
        self.word(44)
    }

    pub(super) fn immediate(&self) -> u32 {
        self.word(36)
    }

    pub(super) fn counter(&self) -> u16 {
        (self.word(60) >> 16) as u16
    }

    pub(super) fn user_index(&self) -> u32 {
        self.word(32)
    }

    /// `app_op` and `app_info`.
    pub(super) fn tag(&self) -> (u8, u16) {
        (self.0[41], (self.word(40) & 0xffff) as u16)
    }
}

/// A data segment.
pub(super) fn segment(at: u64, length: u32, lkey: u32) -> Vec<u8> {
    [&length.to_be_bytes()[..], &lkey.to_be_bytes(), &at.to_be_bytes()].concat()
}

/// A segment that names memory of the peer.
pub(super) fn remote(at: u64, rkey: u32) -> Vec<u8> {
    [&at.to_be_bytes()[..], &rkey.to_be_bytes(), &[0; 4]].concat()
}

/// Has the device work for all programs until `done`.
pub(super) fn work(programs: &mut [Program], mut done: impl FnMut(&mut [Program]) -> bool) {
    let start = Instant::now();
    while !done(programs) {
        assert!(start.elapsed() < Duration::from_secs(20), "the device does nothing more");
        turns(programs, 1);
    }
}

/// So many turns of the device for each program.
pub(super) fn turns(programs: &mut [Program], count: usize) {
    for _ in 0..count {
        for program in programs.iter_mut() {
            program.function.take_letters(&program.caller);
            program.function.turn(|_| true);
        }
    }
}
