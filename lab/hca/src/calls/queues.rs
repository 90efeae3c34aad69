//! Completion queues and shared receive queues.

use std::sync::Arc;

use super::context::{MAX_CQE, MAX_SRQ_SGE, MAX_SRQ_WR, VECTORS};
use super::{Command, Undo};
use crate::abi::{self, CreateCq, CreateSrq, ModifySrq, ResizeCq, ResizedCq};
use crate::abi::{SrqAttributes, TwoWords};
use crate::boundary::{Errno, Kind};
use crate::memory::Memory;
use crate::nic::completion_queue::{Cq, CqPlace, NEVER_ARMED};
use crate::nic::queue_pair::Receives;
use crate::nic::receive_queue::{Srq, SrqCursor, SrqPlace};
use crate::nic::tags::TagQueue;
use crate::nic::{Adapter, Function};

/// `max_cq`.
const CQS_MAX: usize = 4096;

/// `IB_SRQT_*`.
mod srq_type {
    pub(super) const BASIC: u64 = 0;
    pub(super) const TAGS: u64 = 2;
}

impl<M: Memory> Function<M> {
    /// `mlx5_ib_create_cq`.
    pub(super) fn create_cq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let request: CreateCq = command.structure(abi::UHW_IN, &self.adapter.memory)?;
        let entries = command.word(abi::cq::CQE).ok_or(libc::EINVAL)?;
        if entries == 0 || entries > MAX_CQE || !matches!(request.cqe_size, 64 | 128) {
            return Err(libc::EINVAL);
        }
        if command.word(abi::cq::VECTOR).unwrap_or(0) >= VECTORS {
            return Err(libc::EINVAL);
        }
        // check_cq_create_flags takes the time of completions, too, which this device has no clock
        // for; nor has it compressed or padded completions.
        const IGNORE_OVERRUN: u64 = 2;
        if command.value(abi::cq::FLAGS).unwrap_or(0) & !IGNORE_OVERRUN != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if request.cqe_comp_en != 0 || request.flags & !2 != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let size = (entries + 1).next_power_of_two();
        let channel = match command.value(abi::cq::CHANNEL) {
            Some(fd) => {
                let fd = fd as i64 as i32;
                Some(Arc::clone(self.objects.channels.get(&fd).ok_or(libc::EBADF)?))
            }
            None => None,
        };
        if self.adapter.cqs.len() >= CQS_MAX {
            return Err(libc::ENOMEM);
        }
        let place = CqPlace {
            at: request.buf_addr,
            record: request.db_addr,
            size,
            entry_bytes: request.cqe_size,
        };
        self.check_record(place.record)?;
        let bytes = u64::from(size) * u64::from(request.cqe_size);
        self.objects.check_room()?;
        let pages = self.lock(place.at, bytes, true)?;
        let number = self.objects.number();
        let handle = self.objects.add(command.context, Kind::Cq(number))?;
        let user_handle = command.value(abi::cq::USER_HANDLE).unwrap_or(0);
        let cq = Cq::new(place, user_handle, command.context, channel, pages);
        self.adapter.cqs.insert(number, cq);
        command.write_also(place.record + 4, &NEVER_ARMED.to_be_bytes());
        command.answer_handle(abi::cq::HANDLE, handle.into());
        command.answer(abi::cq::RESP_CQE, &(size - 1));
        command.answer(abi::UHW_OUT, &TwoWords { first: number, second: 0 });
        Ok(Undo::Remove(handle))
    }

    /// `ib_uverbs_resize_cq` and `mlx5_ib_resize_cq`. Refused where signals interrupt commands: a
    /// command that is repeated would end the queue twice.
    pub(super) fn resize_cq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        if self.adapter.settings.is_interruptible {
            return Err(libc::EOPNOTSUPP);
        }
        let request: ResizeCq = command.core(&self.adapter.memory)?;
        let buffer: ResizedCq = command.structure(abi::UHW_IN, &self.adapter.memory)?;
        let number = self.objects.cq(command.context, request.cq_handle)?;
        let place = self.adapter.cqs.get(&number).ok_or(libc::EINVAL)?.place;
        let is_same_kind = u32::from(buffer.cqe_size) == place.entry_bytes;
        if request.cqe == 0 || request.cqe > MAX_CQE || buffer.reserved1 != 0 || !is_same_kind {
            return Err(libc::EINVAL);
        }
        let size = (request.cqe + 1).next_power_of_two();
        let bytes = u64::from(size) * u64::from(place.entry_bytes);
        let pages = self.lock(buffer.buf_addr, bytes, true)?;
        let Adapter { cqs, memory, .. } = &mut self.adapter;
        let cq = cqs.get_mut(&number).ok_or(libc::EINVAL)?;
        if !cq.resize(CqPlace { at: buffer.buf_addr, size, ..place }, memory) {
            self.objects.locked -= pages;
            return Err(libc::EINVAL);
        }
        self.objects.locked -= std::mem::replace(&mut cq.pages, pages);
        command.answer(abi::device::CORE_OUT, &TwoWords { first: size - 1, second: 0 });
        Ok(Undo::Nothing)
    }

    /// A doorbell record: eight bytes that the program can write.
    pub(super) fn check_record(&self, at: u64) -> Result<(), Errno> {
        match self.adapter.memory.is_mapped(at, 8, true) {
            Ok(true) if at.is_multiple_of(8) => Ok(()),
            Ok(true) => Err(libc::EINVAL),
            _ => Err(libc::EFAULT),
        }
    }

    pub(super) fn destroy_cq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let handle = command.handle(abi::cq::DESTROY_HANDLE).ok_or(libc::EINVAL)?;
        let number = self.objects.cq(command.context, handle)?;
        let is_used =
            self.qps.values().any(|qp| qp.facts.send_cq == number || qp.facts.recv_cq == number)
                || (self.adapter.srqs.values())
                    .any(|srq| srq.tags.as_ref().is_some_and(|tags| tags.cq == number));
        if is_used {
            return Err(libc::EBUSY);
        }
        let cq = self.adapter.cqs.get_mut(&number).ok_or(libc::EINVAL)?;
        let events = cq.settle_events();
        let context = cq.context;
        let element = cq.user_handle;
        let async_events = cq.async_events;
        let second = async_events.saturating_sub(self.unread_events(context, element));
        let response = TwoWords { first: events, second };
        command.answer(abi::cq::DESTROY_RESP, &response);
        self.take_out(handle).ok_or(libc::EINVAL)
    }

    /// Takes back the asynchronous events about an object that the program has not read; their
    /// number. The library waits until the program has acknowledged all others.
    pub(super) fn unread_events(&self, context: i32, element: u64) -> u32 {
        let context = self.adapter.contexts.get(&context);
        let channel = context.and_then(|context| context.async_events.as_ref());
        channel.map_or(0, |channel| channel.take_back(16, element))
    }

    /// `mlx5_ib_create_srq`.
    pub(super) fn create_srq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        // ib_uverbs_create_srq: the driver has no such operation.
        if self.adapter.settings.knobs.max_srq == 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let request: CreateSrq = command.structure(abi::UHW_IN, &self.adapter.memory)?;
        let max_wr = command.word(abi::srq::MAX_WR).ok_or(libc::EINVAL)?;
        let max_sge = command.word(abi::srq::MAX_SGE).ok_or(libc::EINVAL)?;
        let kind = command.value(abi::srq::TYPE).unwrap_or(0);
        let tags = command.word(abi::srq::MAX_NUM_TAGS).unwrap_or(0);
        if max_wr > MAX_SRQ_WR || max_sge > MAX_SRQ_SGE || request.flags != 0 {
            return Err(libc::EINVAL);
        }
        match kind {
            srq_type::BASIC if tags != 0 => return Err(libc::EINVAL),
            srq_type::TAGS if tags == 0 || tags > self.adapter.settings.tags_max() => {
                return Err(libc::EINVAL);
            }
            srq_type::BASIC | srq_type::TAGS => {}
            _ => return Err(libc::EOPNOTSUPP),
        }
        let pd = command.handle(abi::srq::PD).ok_or(libc::EINVAL)?;
        let pd = self.objects.pd(command.context, pd)?;
        let shift = (16 + 16 * max_sge.max(1)).next_power_of_two().max(32).trailing_zeros();
        let place = SrqPlace {
            at: request.buf_addr,
            record: request.db_addr,
            size: (max_wr + 1).next_power_of_two(),
            shift,
        };
        let list = match kind {
            srq_type::TAGS => {
                let cq = command.handle(abi::srq::CQ).ok_or(libc::EINVAL)?;
                let cq = self.objects.cq(command.context, cq)?;
                let model = &self.adapter.settings.model;
                let config = model.clone().slots(tags).operations(65536);
                Some(Box::new(TagQueue::new(&config, cq).map_err(|_| libc::EINVAL)?))
            }
            _ => None,
        };
        if self.adapter.srqs.len() >= self.adapter.settings.knobs.max_srq as usize {
            return Err(libc::ENOMEM);
        }
        self.check_record(place.record & !7)?;
        self.objects.check_room()?;
        let pages = self.lock(place.at, u64::from(place.size) << shift, true)?;
        let number = self.objects.number();
        let handle = self.objects.add(command.context, Kind::Srq(number))?;
        let user_handle = command.value(abi::srq::USER_HANDLE).unwrap_or(0);
        let srq = Srq {
            place,
            pd,
            context: command.context,
            user_handle,
            user_index: request.uidx,
            segments_max: max_sge.max(1),
            max_wr,
            // mlx5_ib_create_srq leaves the command's limit out: ibv_create_srq(3).
            limit: 0,
            tags: list,
            pages,
            async_events: 0,
            is_broken: false,
            cursor: SrqCursor::default(),
        };
        self.adapter.srqs.insert(number, srq);
        command.answer_handle(abi::srq::HANDLE, handle.into());
        command.answer(abi::srq::RESP_MAX_WR, &max_wr);
        command.answer(abi::srq::RESP_MAX_SGE, &max_sge);
        command.answer(abi::UHW_OUT, &TwoWords { first: number, second: 0 });
        Ok(Undo::Remove(handle))
    }

    pub(super) fn destroy_srq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let handle = command.handle(abi::srq::DESTROY_HANDLE).ok_or(libc::EINVAL)?;
        let number = self.objects.srq(command.context, handle)?;
        let uses = |receives: &Receives| matches!(receives, Receives::Shared(of) if *of == number);
        if self.qps.values().any(|qp| uses(&qp.receives)) {
            return Err(libc::EBUSY);
        }
        let srq = self.adapter.srqs.get(&number).ok_or(libc::EINVAL)?;
        let context = srq.context;
        let element = srq.user_handle;
        let read = srq.async_events.saturating_sub(self.unread_events(context, element));
        command.answer(abi::srq::DESTROY_RESP, &read);
        self.take_out(handle).ok_or(libc::EINVAL)
    }

    /// `mlx5_ib_modify_srq`: no resizing.
    pub(super) fn modify_srq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        const MAX_WR: u32 = 1;
        const LIMIT: u32 = 2;
        let memory = &self.adapter.memory;
        let request: ModifySrq = command.core(memory)?;
        let number = self.objects.srq(command.context, request.srq_handle)?;
        let srq = self.adapter.srqs.get_mut(&number).ok_or(libc::EINVAL)?;
        if request.attr_mask & MAX_WR != 0 {
            return Err(libc::EINVAL);
        }
        if request.attr_mask & LIMIT != 0 {
            if request.srq_limit >= srq.place.size {
                return Err(libc::EINVAL);
            }
            srq.limit = request.srq_limit;
        }
        Ok(Undo::Nothing)
    }

    pub(super) fn query_srq(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let request: abi::QueryQp = command.core(memory)?;
        let number = self.objects.srq(command.context, request.qp_handle)?;
        let srq = self.adapter.srqs.get(&number).ok_or(libc::EINVAL)?;
        let response = SrqAttributes {
            max_wr: srq.max_wr,
            max_sge: srq.segments_max,
            srq_limit: srq.limit,
            reserved: 0,
        };
        command.answer(abi::device::CORE_OUT, &response);
        Ok(Undo::Nothing)
    }
}
