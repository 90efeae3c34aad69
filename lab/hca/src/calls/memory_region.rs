//! Registering memory.

use super::{Command, Undo};
use crate::abi::{self, RegisterMemory, RegisteredMemory, access};
use crate::boundary::{Errno, Kind};
use crate::memory::Memory;
use crate::nic::region::{Region, is_valid_access};
use crate::nic::{Adapter, Function};

/// `IB_ACCESS_ON_DEMAND`, which the device doesn't have.
const ON_DEMAND: u32 = 1 << 6;

impl<M: Memory> Function<M> {
    /// Whether a fault on request has a registration fail.
    fn registration_fails(&mut self, device: usize) -> bool {
        let Adapter { fabric, counts, .. } = &mut self.adapter;
        let fails = fabric.registrations.happens(fabric.ports.registrations(device));
        counts.requested.registrations += u64::from(fails);
        fails
    }

    /// `ib_uverbs_reg_mr` and `mlx5_ib_reg_user_mr`.
    pub(super) fn register(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let request: RegisterMemory = command.core(memory)?;
        let RegisterMemory { start, length, hca_va, pd_handle, access_flags, .. } = request;
        const PAGE: u64 = 4096;
        if start % PAGE != hca_va % PAGE {
            return Err(libc::EINVAL);
        }
        if access_flags & ON_DEMAND != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if !is_valid_access(access_flags) {
            return Err(libc::EINVAL);
        }
        let pd = self.objects.pd(command.context, pd_handle)?;
        if self.registration_fails(command.device) {
            return Err(libc::ENOMEM);
        }
        // ib_umem_get pins for writing whatever may be written.
        let writable = access_flags & access::LOCAL_WRITE != 0;
        self.objects.check_room()?;
        let pages = self.lock(start, length, writable)?;
        let region = Region { pd, start, length, named: hca_va, access: access_flags };
        let added = self.adapter.regions.add(region).ok_or(libc::ENOMEM);
        let key = added.inspect_err(|_| self.objects.locked -= pages)?;
        let handle = self.objects.add(command.context, Kind::Mr { key, pages })?;
        let response = RegisteredMemory { mr_handle: handle, lkey: key, rkey: key };
        command.answer(abi::device::CORE_OUT, &response);
        Ok(Undo::Remove(handle))
    }
}
