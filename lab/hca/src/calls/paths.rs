//! Paths to peers: what an address must be like, and address handles, which Ethernet ports need.

use super::{Command, Undo};
use crate::abi::{self, CreateAh, CreatedAh, Destination, DestroyAh, OneWord};
use crate::boundary::{Errno, Kind};
use crate::memory::Memory;
use crate::nic::connection::out_path;
use crate::nic::{Function, NOWHERE, Ports};
use crate::roce::link::WirePath;
use crate::settings::Settings;

/// The port that a path leads to, by the LID that packets carry; [`NOWHERE`] if no port takes them.
/// The refusals are those of `rdma_check_ah_attr` and `rdma_fill_sgid_attr`; on Ethernet, those of
/// `rdma_addr_find_l2_eth_by_grh`, whose neighbour doesn't answer.
pub(super) fn port_of(
    settings: &Settings,
    ports: &Ports,
    lid: u16,
    path: &Destination,
) -> Result<u16, Errno> {
    let is_ethernet = settings.knobs.is_ethernet();
    if path.port_num != 1 {
        return Err(libc::EINVAL);
    }
    if path.is_global == 0 {
        return if is_ethernet { Err(libc::EINVAL) } else { Ok(path.dlid) };
    }
    let row = ports.gids(settings, lid).get(usize::from(path.sgid_index)).copied();
    let row = row.ok_or(libc::EINVAL)?.ok_or(libc::ENODATA)?;
    if !is_ethernet {
        return Ok(path.dlid);
    }
    let Some(to) = ports.named(settings, &path.dgid) else {
        return if settings.has_network() { Ok(NOWHERE) } else { Err(libc::ETIMEDOUT) };
    };
    Ok(if ports.takes(settings, to, row.kind, &path.dgid) { to } else { NOWHERE })
}

/// The path over a network to a GID that no port of this command has. `None`: the peer is inside,
/// or packets of UDP can't go there.
pub(super) fn network_path(
    settings: &Settings,
    ports: &Ports,
    lid: u16,
    path: &Destination,
) -> Option<WirePath> {
    let row = (*ports.gids(settings, lid).get(usize::from(path.sgid_index))?)?;
    let is_inside = ports.named(settings, &path.dgid).is_some();
    out_path(row, &path.dgid).filter(|_| settings.has_network() && !is_inside)
}

impl<M: Memory> Function<M> {
    /// `mlx5_ib_create_ah`, which resolves the peer's address on Ethernet.
    pub(super) fn create_ah(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let CreateAh { pd_handle, dgid, sgid_index, port_num, is_global, dlid, .. } =
            command.core(memory)?;
        self.objects.pd(command.context, pd_handle)?;
        let path =
            Destination { dgid, sgid_index, port_num, is_global, dlid, ..Destination::default() };
        let settings = &self.adapter.settings;
        let ports = &self.adapter.fabric.ports;
        port_of(settings, ports, Settings::lid(command.device), &path)?;
        let to = ports.named(settings, &dgid).unwrap_or(NOWHERE);
        let handle = self.objects.add(command.context, Kind::Ah)?;
        command.answer(abi::device::CORE_OUT, &OneWord { value: handle });
        let response_length = size_of::<CreatedAh>() as u32;
        let created = CreatedAh { response_length, dmac: Settings::mac(to), reserved: [0; 6] };
        command.answer(abi::UHW_OUT, &created);
        Ok(Undo::Remove(handle))
    }

    /// The write command that does what `abi::ah::DESTROY` does.
    pub(super) fn destroy_ah(&mut self, command: &Command) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let DestroyAh { ah_handle } = command.core(memory)?;
        match self.objects.all.get(&ah_handle) {
            Some(object) if object.context == command.context && object.kind.is_ah() => {
                self.take_out(ah_handle).ok_or(libc::EINVAL)
            }
            _ => Err(libc::EINVAL),
        }
    }
}
