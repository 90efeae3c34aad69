//! Queue pairs.

use super::context::MAX_QP_WR;
use super::paths::{network_path, port_of};
use super::{Command, Undo};
use crate::abi::{self, CreateQp, CreatedQp, ModifyQp, QpAttributes, QpCapabilities, QueryQp};
use crate::abi::{TwoWords, qp_flags, qp_mask};
use crate::boundary::{Errno, Kind};
use crate::knobs::LinkLayer;
use crate::memory::Memory;
use crate::nic::Function;
use crate::nic::connection::Wired;
use crate::nic::queue_pair::{Qp, QpFacts, Receives, Sq, State, Transport};
use crate::nic::receive_queue::{RECEIVE_MAX, Rq};
use crate::settings::Settings;
use crate::wqe::BLOCK;

/// `IB_QPT_RC`, `IB_QPT_UD`.
const RELIABLE: u64 = 2;
const DATAGRAM: u64 = 4;
/// `IB_UVERBS_QP_CREATE_SQ_SIG_ALL`.
const SIGNALS_ALL: u64 = 1 << 12;
/// Queue pairs that a program may have: `max_qp`.
const QPS_MAX: usize = 32768;

/// A number of places: a power of two, or none.
fn is_size(size: u32) -> bool {
    (size == 0 || size.is_power_of_two()) && size <= MAX_QP_WR
}

impl<M: Memory> Function<M> {
    /// `mlx5_ib_create_qp`.
    pub(super) fn create_qp(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let request: CreateQp = command.structure(abi::UHW_IN, memory)?;
        let mut cap: QpCapabilities = command.structure(abi::qp::CAP, memory)?;
        let is_iwarp = self.adapter.settings.knobs.link_layer == LinkLayer::Iwarp;
        let transport = match command.value(abi::qp::TYPE) {
            Some(RELIABLE) => Transport::Reliable,
            Some(DATAGRAM) if !is_iwarp => Transport::Datagram,
            _ => return Err(libc::EOPNOTSUPP),
        };
        let knobs = &self.adapter.settings.knobs;
        if !knobs.takes_inline(cap.max_inline_data, cap.max_send_sge) {
            return Err(libc::EINVAL);
        }
        cap.max_inline_data = knobs.inline_granted(cap.max_inline_data);
        const KNOWN: u32 = qp_flags::SCATTER_CQE
            | qp_flags::BFREG_INDEX
            | qp_flags::ALLOW_SCATTER_CQE
            | qp_flags::PACKET_BASED_CREDIT_MODE
            | qp_flags::UAR_PAGE_INDEX;
        if request.flags & !KNOWN != 0 {
            return Err(libc::EINVAL);
        }
        let sends = request.sq_wqe_count;
        let receives = request.rq_wqe_count;
        let shift = request.rq_wqe_shift;
        let is_valid = is_size(sends)
            && is_size(receives)
            && (receives == 0 || (4..32).contains(&shift) && 1 << shift <= RECEIVE_MAX);
        if !is_valid || self.qps.len() >= QPS_MAX {
            return Err(libc::EINVAL);
        }
        let context = command.context;
        let of = |id| command.handle(id).ok_or(libc::EINVAL);
        let pd = self.objects.pd(context, of(abi::qp::PD)?)?;
        let send_cq = self.objects.cq(context, of(abi::qp::SEND_CQ)?)?;
        let recv_cq = match command.handle(abi::qp::RECV_CQ) {
            Some(handle) => self.objects.cq(context, handle)?,
            None => send_cq,
        };
        let queue = match command.handle(abi::qp::SRQ) {
            Some(handle) => Receives::Shared(self.objects.srq(context, handle)?),
            None => Receives::Own(Rq::new(request.buf_addr, receives, shift)),
        };
        self.check_record(request.db_addr)?;
        self.objects.check_room()?;
        let receive_bytes = u64::from(receives) << if receives == 0 { 0 } else { shift };
        let bytes = receive_bytes + u64::from(sends) * BLOCK;
        let pages = match bytes {
            0 => 0,
            _ => self.lock(request.buf_addr, bytes, true)?,
        };
        let number = self.adapter.fabric.add(&self.adapter.inbox);
        let handle = self.objects.add(context, Kind::Qp(number))?;
        let flags = command.value(abi::qp::FLAGS).unwrap_or(0);
        let facts = QpFacts {
            number,
            context,
            lid: Settings::lid(command.device),
            pd,
            transport,
            user_handle: command.value(abi::qp::USER_HANDLE).unwrap_or(0),
            user_index: request.uidx,
            record: request.db_addr,
            send_cq,
            recv_cq,
            scatters_to_cqe: request.flags & qp_flags::SCATTER_CQE != 0,
            signals_all: flags & SIGNALS_ALL != 0,
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline: cap.max_inline_data,
            pages,
        };
        let at = request.buf_addr + receive_bytes;
        let sq = Sq { at, size: sends, next: 0, posted: 0 };
        self.qps.insert(number, Qp::new(facts, sq, queue));
        command.answer_handle(abi::qp::HANDLE, handle.into());
        command.answer(abi::qp::RESP_CAP, &cap);
        command.answer(abi::qp::RESP_QP_NUM, &number);
        let bfreg_index = request.bfreg_index;
        command.answer(abi::UHW_OUT, &CreatedQp { bfreg_index, ..CreatedQp::default() });
        Ok(Undo::Remove(handle))
    }

    pub(super) fn modify_qp(
        &mut self,
        command: &mut Command,
        is_extended: bool,
    ) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let change: ModifyQp = command.core(memory)?;
        let number = self.objects.qp(command.context, change.qp_handle)?;
        let Function { qps, adapter, .. } = self;
        let qp = qps.get_mut(&number).ok_or(libc::EINVAL)?;
        let to = qp.next_state(&change)?;
        if change.attr_mask & qp_mask::AV != 0 {
            let settings = &adapter.settings;
            if settings.knobs.link_layer == LinkLayer::Iwarp {
                return Err(libc::EINVAL);
            }
            let ports = &adapter.fabric.ports;
            qp.to_lid = port_of(settings, ports, qp.facts.lid, &change.dest)?;
            let path = network_path(settings, ports, qp.facts.lid, &change.dest);
            match (&mut qp.wire, path) {
                // A drained queue pair goes on with its numbers.
                (Some(wire), Some(path)) => wire.redirect(path),
                (wire, path) => *wire = path.map(|path| Box::new(Wired::new(path))),
            }
        }
        let before = (qp.state, qp.attributes);
        if is_extended {
            let length = size_of::<TwoWords>() as u32;
            command.answer(abi::device::CORE_OUT, &TwoWords { first: 0, second: length });
        }
        match to {
            State::Error => {
                let notices = qp.enter_error(adapter);
                self.tell_tags(number, notices);
                Ok(Undo::Nothing)
            }
            State::Reset => {
                let receives = qp.receives.clone();
                qp.change(&change, to);
                if let Receives::Shared(srq) = receives {
                    self.forget_pair(number, srq);
                }
                Ok(Undo::Nothing)
            }
            _ => {
                qp.change(&change, to);
                Ok(Undo::Change(number, before.0, before.1))
            }
        }
    }

    pub(super) fn query_qp(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let request: QueryQp = command.core(memory)?;
        let number = self.objects.qp(command.context, request.qp_handle)?;
        let qp = self.qps.get(&number).ok_or(libc::EINVAL)?;
        let facts = &qp.facts;
        let set = &qp.attributes.0;
        let response = QpAttributes {
            dest: set.dest,
            alt_dest: set.alt_dest,
            max_send_wr: facts.max_send_wr,
            // mlx5_ib_query_qp tells the size of the queue.
            max_recv_wr: qp.receives.size().unwrap_or(facts.max_recv_wr),
            max_send_sge: facts.max_send_sge,
            max_recv_sge: facts.max_recv_sge,
            max_inline_data: facts.max_inline,
            qkey: set.qkey,
            rq_psn: qp.expected,
            sq_psn: qp.psn,
            dest_qp_num: set.dest_qp_num,
            qp_access_flags: set.qp_access_flags,
            pkey_index: set.pkey_index,
            alt_pkey_index: set.alt_pkey_index,
            qp_state: qp.state as u8,
            cur_qp_state: qp.state as u8,
            path_mtu: set.path_mtu,
            path_mig_state: set.path_mig_state,
            sq_draining: u8::from(qp.state == State::Drained && !qp.outstanding.is_empty()),
            max_rd_atomic: set.max_rd_atomic,
            max_dest_rd_atomic: set.max_dest_rd_atomic,
            min_rnr_timer: set.min_rnr_timer,
            port_num: set.port_num,
            timeout: set.timeout,
            retry_cnt: set.retry_cnt,
            rnr_retry: set.rnr_retry,
            alt_port_num: set.alt_port_num,
            alt_timeout: set.alt_timeout,
            sq_sig_all: facts.signals_all.into(),
            reserved: [0; 5],
        };
        command.answer(abi::device::CORE_OUT, &response);
        Ok(Undo::Nothing)
    }

    pub(super) fn destroy_qp(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let handle = command.handle(abi::qp::DESTROY_HANDLE).ok_or(libc::EINVAL)?;
        let number = self.objects.qp(command.context, handle)?;
        let qp = self.qps.get(&number).ok_or(libc::EINVAL)?;
        let context = qp.facts.context;
        let element = qp.facts.user_handle;
        let read = qp.async_events.saturating_sub(self.unread_events(context, element));
        command.answer(abi::qp::DESTROY_RESP, &read);
        self.take_out(handle).ok_or(libc::EINVAL)
    }
}
