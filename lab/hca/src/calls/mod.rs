//! The driver's side: the commands of libibverbs, refused where the kernel's mlx5 driver refuses
//! them, with the same error number.

pub(crate) mod command;
mod context;
mod memory_region;
mod paths;
mod queue_pairs;
mod queues;

use std::collections::BTreeMap;

use crate::abi;
use crate::boundary::{Answers, Call, Errno, Kind, Object};
use crate::memory::Memory;
use crate::nic::queue_pair::{Attributes, Qp, State};
use crate::nic::receive_queue::Srq;
use crate::nic::region::Region;
use crate::nic::{DeviceOperation, Function, completion_queue::Cq};
use crate::settings::Settings;
use command::Command;

/// Threads of a program whose last command is known.
const THREADS_MAX: usize = 16;

/// How a command is undone whose caller was interrupted by a signal. The caller repeats it.
pub(crate) enum Undo {
    Nothing,
    /// An object was made.
    Remove(u32),
    /// An object was destroyed.
    Restore(u32, Object, Restored),
    /// A queue pair was changed.
    Change(u32, State, Attributes),
    /// A context was opened.
    Close(i32),
}

/// The parts of an object that was destroyed.
pub(crate) enum Restored {
    Nothing,
    Region(u32, Region),
    Cq(u32, Box<Cq>),
    Srq(u32, Box<Srq>),
    Qp(u32, Box<Qp>),
}

impl<M: Memory> Function<M> {
    /// Carries out a command and answers it.
    pub(crate) fn call(&mut self, call: &Call, answers: &impl Answers) {
        let lid = Settings::lid(call.device);
        self.adapter.fabric.ports.begin(lid, DeviceOperation::Command);
        self.lose_contexts();
        let done = self.execute(call, answers);
        let (errno, undo) = match done {
            Ok(undo) => (0, undo),
            Err(errno) => (errno, Undo::Nothing),
        };
        if !answers.answer(call.id, errno) && !matches!(undo, Undo::Nothing) {
            self.answered.retain(|(thread, _)| *thread != call.thread);
            self.undo(undo);
        }
    }

    fn execute(&mut self, call: &Call, answers: &impl Answers) -> Result<Undo, Errno> {
        let mut command = Command::read(&self.adapter.memory, call)?;
        if self.is_repeated(&command, call.thread) {
            return Ok(Undo::Nothing);
        }
        let undo = self.dispatch(&mut command, answers)?;
        if command.write(&self.adapter.memory).is_err() {
            self.undo(undo);
            return Err(libc::EFAULT);
        }
        if self.adapter.settings.is_interruptible
            && !matches!(undo, Undo::Nothing)
            && let Some(image) = command.image(&self.adapter.memory)
        {
            self.answered.truncate(THREADS_MAX - 1);
            self.answered.push_front((call.thread, image));
        }
        Ok(undo)
    }

    /// Whether a command was carried out and answered, and its caller does not know. Any other one
    /// ends what is known of the thread.
    fn is_repeated(&mut self, command: &Command, thread: i32) -> bool {
        let before = self.answered.iter().position(|(of, _)| *of == thread);
        let Some(before) = before.and_then(|at| self.answered.remove(at)) else { return false };
        let is_it = command.image(&self.adapter.memory).as_ref() == Some(&before.1);
        if is_it {
            self.answered.push_front(before);
        }
        is_it
    }

    fn dispatch(&mut self, command: &mut Command, answers: &impl Answers) -> Result<Undo, Errno> {
        self.check_lost(command)?;
        let is_open = self.adapter.contexts.contains_key(&command.context);
        match command.method {
            abi::device::GET_CONTEXT => return self.open_context(command, answers),
            abi::device::INVOKE_WRITE => return self.invoke_write(command, answers),
            abi::device::QUERY_PORT => return self.query_port(command),
            abi::device::QUERY_GID_ENTRY => return self.query_gid_entry(command),
            abi::device::QUERY_GID_TABLE => return self.query_gid_table(command),
            _ if !is_open => return Err(libc::EINVAL),
            _ => {}
        }
        match command.method {
            abi::async_event::ALLOC => self.open_async_events(command, answers),
            abi::uar::ALLOC => self.allocate_uar(command),
            abi::uar::DESTROY => self.destroy(command, abi::uar::DESTROY_HANDLE),
            abi::ah::DESTROY => self.destroy(command, abi::ah::HANDLE),
            abi::pd::DESTROY => self.destroy(command, abi::pd::HANDLE),
            abi::mr::DESTROY => self.destroy(command, abi::mr::HANDLE),
            abi::cq::CREATE => self.create_cq(command),
            abi::cq::DESTROY => self.destroy_cq(command),
            abi::srq::CREATE => self.create_srq(command),
            abi::srq::DESTROY => self.destroy_srq(command),
            abi::qp::CREATE => self.create_qp(command),
            abi::qp::DESTROY => self.destroy_qp(command),
            // ib_uverbs_cmd_verbs: what the kernel doesn't know.
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }

    /// Refuses commands to a device that was lost. While it is reset, commands that destroy succeed
    /// (`mlx5_internal_err_ret_value`). Once it has come back, it knows the program no more
    /// (`ib_uverbs_ioctl`).
    fn check_lost(&self, command: &Command) -> Result<(), Errno> {
        const DESTROY: [u32; 7] = [
            abi::uar::DESTROY,
            abi::ah::DESTROY,
            abi::pd::DESTROY,
            abi::mr::DESTROY,
            abi::cq::DESTROY,
            abi::srq::DESTROY,
            abi::qp::DESTROY,
        ];
        if !self.is_lost(command.context) || command.method == abi::device::GET_CONTEXT {
            return Ok(());
        }
        let is_reset = !self.adapter.fabric.ports.is_back(command.device);
        let destroys = DESTROY.contains(&command.method)
            || command.value(abi::device::WRITE_CMD) == Some(abi::write_command::DESTROY_AH.into())
                && command.method == abi::device::INVOKE_WRITE;
        if is_reset && destroys { Ok(()) } else { Err(libc::EIO) }
    }

    fn invoke_write(
        &mut self,
        command: &mut Command,
        answers: &impl Answers,
    ) -> Result<Undo, Errno> {
        use abi::write_command::*;
        let number = command.value(abi::device::WRITE_CMD).ok_or(libc::EINVAL)?;
        let number = u32::try_from(number).map_err(|_| libc::EINVAL)?;
        match number & !EXTENDED {
            QUERY_DEVICE => self.query_device(command, number & EXTENDED != 0),
            _ if !self.adapter.contexts.contains_key(&command.context) => Err(libc::EINVAL),
            ALLOC_PD => self.allocate_pd(command),
            CREATE_AH => self.create_ah(command),
            DESTROY_AH => self.destroy_ah(command),
            REG_MR => self.register(command),
            REREG_MR => self.reregister(command),
            CREATE_COMP_CHANNEL => self.create_channel(command, answers),
            RESIZE_CQ => self.resize_cq(command),
            MODIFY_QP => self.modify_qp(command, number & EXTENDED != 0),
            QUERY_QP => self.query_qp(command),
            MODIFY_SRQ => self.modify_srq(command),
            QUERY_SRQ => self.query_srq(command),
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    /// Destroys an object that tells the program nothing.
    fn destroy(&mut self, command: &Command, attribute: u16) -> Result<Undo, Errno> {
        let handle = command.handle(attribute).ok_or(libc::EINVAL)?;
        let object = self.objects.all.get(&handle).ok_or(libc::EINVAL)?;
        let is_it = object.context == command.context
            && match (&object.kind, command.method) {
                (Kind::Pd, abi::pd::DESTROY) => {
                    if self.is_pd_used(handle) {
                        return Err(libc::EBUSY);
                    }
                    true
                }
                (Kind::Mr { .. }, abi::mr::DESTROY)
                | (Kind::Ah, abi::ah::DESTROY)
                | (Kind::Uar { .. }, abi::uar::DESTROY) => true,
                _ => false,
            };
        if !is_it {
            return Err(libc::EINVAL);
        }
        self.take_out(handle).ok_or(libc::EINVAL)
    }

    fn is_pd_used(&self, pd: u32) -> bool {
        self.adapter.regions.uses(pd)
            || self.qps.values().any(|qp| qp.facts.pd == pd)
            || self.adapter.srqs.values().any(|srq| srq.pd == pd)
    }

    /// Takes an object out of all tables.
    fn take_out(&mut self, handle: u32) -> Option<Undo> {
        let object = self.objects.all.remove(&handle)?;
        let restored = match object.kind {
            Kind::Pd | Kind::Ah => Restored::Nothing,
            Kind::Uar { page } => {
                if let Some(context) = self.adapter.contexts.get_mut(&object.context) {
                    context.doorbells.free_page(page);
                }
                Restored::Nothing
            }
            Kind::Mr { key, pages } => {
                self.objects.locked -= pages;
                let region = self.adapter.regions.remove(key)?;
                Restored::Region(key, region)
            }
            Kind::Cq(number) => {
                let cq = self.adapter.cqs.remove(&number)?;
                self.objects.locked -= cq.pages;
                Restored::Cq(number, Box::new(cq))
            }
            Kind::Srq(number) => {
                let mut srq = self.adapter.srqs.remove(&number)?;
                if let Some(tags) = &mut srq.tags {
                    tags.count(&mut self.adapter.counts);
                }
                self.objects.locked -= srq.pages;
                Restored::Srq(number, Box::new(srq))
            }
            Kind::Qp(number) => {
                let qp = self.qps.remove(&number)?;
                self.adapter.fabric.remove(number);
                self.objects.locked -= qp.facts.pages;
                if let crate::nic::queue_pair::Receives::Shared(srq) = qp.receives {
                    self.forget_pair(number, srq);
                }
                Restored::Qp(number, Box::new(qp))
            }
        };
        Some(Undo::Restore(handle, object, restored))
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Nothing => {}
            Undo::Remove(handle) => drop(self.take_out(handle)),
            Undo::Close(context) => self.close_context(context),
            Undo::Change(number, state, attributes) => {
                if let Some(qp) = self.qps.get_mut(&number) {
                    (qp.state, qp.attributes) = (state, attributes);
                }
            }
            Undo::Restore(handle, object, restored) => {
                match restored {
                    Restored::Nothing => {}
                    Restored::Region(key, region) => {
                        if let Kind::Mr { pages, .. } = object.kind {
                            self.objects.locked += pages;
                        }
                        self.adapter.regions.restore(key, region);
                    }
                    Restored::Cq(number, cq) => {
                        self.objects.locked += cq.pages;
                        self.adapter.cqs.insert(number, *cq);
                    }
                    Restored::Srq(number, srq) => {
                        self.objects.locked += srq.pages;
                        self.adapter.srqs.insert(number, *srq);
                    }
                    Restored::Qp(number, qp) => {
                        self.objects.locked += qp.facts.pages;
                        self.adapter.fabric.restore(number, &self.adapter.inbox);
                        self.qps.insert(number, *qp);
                    }
                }
                self.objects.all.insert(handle, object);
            }
        }
    }

    /// Locks pages, if the process may: `ib_umem_get` counts them against `RLIMIT_MEMLOCK`.
    fn lock(&mut self, at: u64, length: u64, writable: bool) -> Result<u64, Errno> {
        const PAGE: u64 = 4096;
        if length == 0 || at.checked_add(length).is_none() {
            return Err(libc::EINVAL);
        }
        let pages = (at + length).div_ceil(PAGE) - at / PAGE;
        let locked = self.objects.locked.saturating_add(pages);
        if locked.saturating_mul(PAGE) > self.adapter.memory.lockable() {
            return Err(libc::ENOMEM);
        }
        match self.adapter.memory.is_mapped(at, length, writable) {
            Ok(true) => {}
            Ok(false) => return Err(libc::EFAULT),
            Err(error) => {
                self.adapter.note(error);
                return Err(libc::EFAULT);
            }
        }
        self.objects.locked = locked;
        let most = &mut self.adapter.counts.locked_max;
        *most = (*most).max(locked * PAGE);
        Ok(pages)
    }

    /// The errors in the books of objects, one line each.
    #[cfg(test)]
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut pages = 0;
        let mut counts = [0; 3];
        for object in self.objects.all.values() {
            let (at, of_object) = match object.kind {
                Kind::Pd | Kind::Ah | Kind::Uar { .. } => continue,
                Kind::Mr { pages: of_region, .. } => {
                    pages += of_region;
                    continue;
                }
                Kind::Cq(number) => (0, self.adapter.cqs.get(&number).map(|cq| cq.pages)),
                Kind::Srq(number) => (1, self.adapter.srqs.get(&number).map(|srq| srq.pages)),
                Kind::Qp(number) => (2, self.qps.get(&number).map(|qp| qp.facts.pages)),
            };
            counts[at] += 1;
            pages += of_object.unwrap_or(0);
        }
        let found = [self.adapter.cqs.len(), self.adapter.srqs.len(), self.qps.len()];
        let locked = self.objects.locked;
        let mut wrong = Vec::new();
        if counts != found {
            wrong.push(format!("{counts:?} queues and pairs have handles; {found:?} exist"));
        }
        if pages != locked {
            wrong.push(format!("objects take {pages} pages, {locked} are locked"));
        }
        wrong
    }

    /// The objects of a descriptor that the program has closed are destroyed.
    pub(crate) fn close_context(&mut self, context: i32) {
        let of_kind = |wanted: fn(&Kind) -> bool, all: &BTreeMap<u32, Object>| -> Vec<u32> {
            let is_it = |object: &Object| object.context == context && wanted(&object.kind);
            all.iter().filter(|(_, object)| is_it(object)).map(|(handle, _)| *handle).collect()
        };
        let in_turn: [fn(&Kind) -> bool; 3] =
            [|kind| matches!(kind, Kind::Qp(_)), |kind| matches!(kind, Kind::Srq(_)), |_| true];
        for wanted in in_turn {
            for handle in of_kind(wanted, &self.objects.all) {
                drop(self.take_out(handle));
            }
        }
        self.adapter.contexts.remove(&context);
    }
}
