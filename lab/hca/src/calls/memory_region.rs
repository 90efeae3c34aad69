//! Registering memory.

use super::{Command, Undo};
use crate::abi::{self, RegisterMemory, RegisteredMemory, ReregisterMemory, TwoWords, access};
use crate::boundary::{Errno, Kind};
use crate::memory::Memory;
use crate::nic::region::{Region, is_valid_access};
use crate::nic::{Adapter, Function};

const PAGE: u64 = 4096;
/// `IB_ACCESS_ON_DEMAND`, which the device doesn't have.
const ON_DEMAND: u32 = 1 << 6;

/// `ib_check_mr_access`.
fn check_access(flags: u32) -> Result<(), Errno> {
    if flags & ON_DEMAND != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if is_valid_access(flags) { Ok(()) } else { Err(libc::EINVAL) }
}

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
        if start % PAGE != hca_va % PAGE {
            return Err(libc::EINVAL);
        }
        check_access(access_flags)?;
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

    /// `ib_uverbs_rereg_mr` and `mlx5_ib_rereg_user_mr`: the key stays. A command that is repeated
    /// does the same again.
    pub(super) fn reregister(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        const TRANSLATION: u32 = 1;
        const DOMAIN: u32 = 2;
        const ACCESS: u32 = 4;
        let request: ReregisterMemory = command.core(&self.adapter.memory)?;
        let ReregisterMemory { flags, start, length, hca_va, .. } = request;
        let changes = |what| flags & what != 0;
        if flags == 0 {
            return Err(libc::EINVAL);
        }
        if flags & !(TRANSLATION | DOMAIN | ACCESS) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if changes(TRANSLATION) && start % PAGE != hca_va % PAGE {
            return Err(libc::EINVAL);
        }
        let context = command.context;
        let (key, _) = self.objects.mr(context, request.mr_handle)?;
        let mut region = self.adapter.regions.get(key).ok_or(libc::EINVAL)?;
        if changes(ACCESS) {
            check_access(request.access_flags)?;
            region.access = request.access_flags;
        }
        if changes(DOMAIN) {
            region.pd = self.objects.pd(context, request.pd_handle)?;
        }
        let writable = region.access & access::LOCAL_WRITE != 0;
        if changes(TRANSLATION) {
            region = Region { start, length, named: hca_va, ..region };
        }
        // The new memory is pinned before the old one is given up.
        let new = self.lock(region.start, region.length, writable)?;
        let (_, pages) = self.objects.mr(context, request.mr_handle)?;
        let old = std::mem::replace(pages, new);
        self.objects.locked -= old;
        self.adapter.regions.restore(key, region);
        command.answer(abi::device::CORE_OUT, &TwoWords { first: key, second: key });
        Ok(Undo::Nothing)
    }
}
