//! Opening a device, and asking what it is.

use std::sync::Arc;
use std::time::Instant;

use super::{Command, Undo};
use crate::abi::{self, ContextRequest, ContextResponse, DeviceAttributes};
use crate::abi::{ExtendedDeviceAttributes, GidEntry, OneWord, PortAttributes, TagCapabilities};
use crate::boundary::{Answers, Errno, Kind};
use crate::channel::Channel;
use crate::doorbells::{Doorbells, PAGE};
use crate::gid::{GIDS, GidTable, PortGid};
use crate::knobs::PKEYS;
use crate::memory::Memory;
use crate::nic::{Context, Function};
use crate::settings::Settings;

/// `num_comp_vectors`.
pub(crate) const VECTORS: u32 = 2;
/// Queue pairs, completion queues and shared receive queues of a device.
pub(super) const MAX_CQE: u32 = 4_194_303;
pub(super) const MAX_SRQ_WR: u32 = 32767;
pub(super) const MAX_SRQ_SGE: u32 = 31;
/// `max_qp_wr`, and the blocks of the longest send queue.
pub(super) const MAX_QP_WR: u32 = 32768;
/// `fw_ver`: 16.35.4030.
const FIRMWARE: u64 = 16 << 32 | 35 << 16 | 4030;

/// A new channel of events, and its descriptor in the program.
fn give_channel(command: &Command, answers: &impl Answers) -> Result<(Arc<Channel>, i32), Errno> {
    let channel = Arc::new(Channel::new().map_err(|_| libc::EMFILE)?);
    let given = answers.give(command.call, channel.reader());
    let fd = given.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
    Ok((channel, fd))
}

impl<M: Memory> Function<M> {
    pub(super) fn open_context(
        &mut self,
        command: &mut Command,
        answers: &impl Answers,
    ) -> Result<Undo, Errno> {
        let memory = &self.adapter.memory;
        let request: ContextRequest = command.structure(abi::UHW_IN, memory)?;
        // mlx5_ib_alloc_ucontext: DEVX needs a firmware that knows it.
        if request.flags & abi::UCTX_DEVX != 0 || request.flags & !abi::UCTX_DEVX != 0 {
            return Err(libc::EINVAL);
        }
        if request.comp_mask != 0 || request.reserved2 != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if request.total_num_bfregs == 0
            || request.num_low_latency_bfregs > request.total_num_bfregs - 1
        {
            return Err(libc::EINVAL);
        }
        let ports = &self.adapter.fabric.ports;
        // mlx5_ib_alloc_ucontext: a device that is being reset is not active.
        if !ports.is_back(command.device) {
            return Err(libc::EAGAIN);
        }
        let losses = ports.losses(command.device);
        // A descriptor that is given again was closed.
        self.close_context(command.context);
        let is_ethernet = self.adapter.settings.knobs.is_ethernet();
        let is_dynamic = request.lib_caps & abi::LIB_CAP_DYN_UAR != 0;
        let response = ContextResponse {
            qp_tab_size: 1 << 18,
            bf_reg_size: 512,
            tot_bfregs: if is_dynamic { 0 } else { request.total_num_bfregs },
            cache_line_size: 64,
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: MAX_QP_WR,
            max_recv_wr: MAX_QP_WR,
            max_srq_recv_wr: MAX_SRQ_WR,
            num_ports: 1,
            response_length: size_of::<ContextResponse>() as u32,
            cqe_version: 1,
            cmds_supp_uhw: if is_ethernet { abi::UHW_CREATE_AH } else { 0 },
            eth_min_inline: 1,
            log_uar_size: 12,
            num_uars_per_page: 1,
            num_dyn_bfregs: 1024,
            ..ContextResponse::default()
        };
        command.answer(abi::UHW_OUT, &response);
        command.answer(abi::device::NUM_COMP_VECTORS, &VECTORS);
        // IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS
        command.answer(abi::device::CORE_SUPPORT, &1_u64);
        let number = self.adapter.settings.devices[command.device];
        let doorbells = Doorbells::new(number).map_err(|_| libc::EMFILE)?;
        let replaced = answers.replace(command.call, command.context, doorbells.file());
        replaced.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let warm_until = Instant::now();
        let device = command.device;
        let context = Context {
            device,
            losses,
            is_lost: false,
            async_events: None,
            kept: None,
            doorbells,
            has_rung: false,
            warm_until,
        };
        self.adapter.contexts.insert(command.context, context);
        Ok(Undo::Close(command.context))
    }

    pub(super) fn open_async_events(
        &mut self,
        command: &mut Command,
        answers: &impl Answers,
    ) -> Result<Undo, Errno> {
        let (channel, fd) = give_channel(command, answers)?;
        command.answer_handle(abi::async_event::FD_HANDLE, fd as u64);
        let kept = answers.keep(&channel);
        if let Some(context) = self.adapter.contexts.get_mut(&command.context) {
            (context.async_events, context.kept) = (Some(channel), kept);
        }
        Ok(Undo::Nothing)
    }

    pub(super) fn create_channel(
        &mut self,
        command: &mut Command,
        answers: &impl Answers,
    ) -> Result<Undo, Errno> {
        let (channel, fd) = give_channel(command, answers)?;
        self.objects.channels.insert(fd, channel);
        command.answer(abi::device::CORE_OUT, &OneWord { value: fd as u32 });
        Ok(Undo::Nothing)
    }

    pub(super) fn allocate_uar(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let context = self.adapter.contexts.get_mut(&command.context).ok_or(libc::EINVAL)?;
        self.objects.check_room()?;
        let page = context.doorbells.take_page().ok_or(libc::ENOMEM)?;
        let handle = self.objects.add(command.context, Kind::Uar { page })?;
        command.answer_handle(abi::uar::HANDLE, handle.into());
        command.answer(abi::uar::MMAP_OFFSET, &((page * PAGE) as u64));
        command.answer(abi::uar::MMAP_LENGTH, &(PAGE as u32));
        command.answer(abi::uar::PAGE_ID, &(page as u32));
        Ok(Undo::Remove(handle))
    }

    pub(super) fn allocate_pd(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let handle = self.objects.add(command.context, Kind::Pd)?;
        command.answer(abi::device::CORE_OUT, &OneWord { value: handle });
        command.answer(abi::UHW_OUT, &OneWord { value: handle });
        Ok(Undo::Remove(handle))
    }

    pub(super) fn query_device(
        &mut self,
        command: &mut Command,
        is_extended: bool,
    ) -> Result<Undo, Errno> {
        // The library asks so whether the kernel takes such commands: ib_uverbs_query_device.
        if !command.has(abi::device::CORE_OUT) {
            return Err(libc::ENOSPC);
        }
        let settings = &self.adapter.settings;
        let guid = Settings::guid(Settings::lid(command.device));
        let has_srqs = settings.knobs.max_srq > 0;
        let base = DeviceAttributes {
            fw_ver: FIRMWARE,
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_ffff_ffff_f000,
            vendor_id: 0x2c9,
            vendor_part_id: 4121,
            max_qp: 32768,
            max_qp_wr: MAX_QP_WR,
            device_cap_flags: abi::PORT_ACTIVE_EVENT | abi::SYS_IMAGE_GUID | abi::RC_RNR_NAK_GEN,
            max_sge: 30,
            max_sge_rd: 30,
            max_cq: 4096,
            max_cqe: MAX_CQE,
            max_mr: 32768,
            max_pd: 32768,
            max_qp_rd_atom: 16,
            max_res_rd_atom: 262_144,
            max_qp_init_rd_atom: 16,
            atomic_cap: 1,
            max_ah: i32::MAX as u32,
            max_srq: settings.knobs.max_srq,
            max_srq_wr: if has_srqs { MAX_SRQ_WR } else { 0 },
            max_srq_sge: if has_srqs { MAX_SRQ_SGE } else { 0 },
            max_pkeys: PKEYS as u16,
            local_ca_ack_delay: 16,
            phys_port_cnt: 1,
            ..DeviceAttributes::default()
        };
        if !is_extended {
            command.answer(abi::device::CORE_OUT, &base);
            return Ok(Undo::Nothing);
        }
        // mlx5_ib_query_device, with rndv_offload_rc.
        let tm_caps = match settings.tags_max() {
            0 => TagCapabilities::default(),
            max_num_tags => TagCapabilities {
                max_rndv_hdr_size: 64,
                max_num_tags,
                flags: 1,
                max_ops: MAX_QP_WR,
                max_sge: 1,
                reserved: 0,
            },
        };
        let response = ExtendedDeviceAttributes {
            base,
            response_length: size_of::<ExtendedDeviceAttributes>() as u32,
            device_cap_flags_ex: base.device_cap_flags.into(),
            tm_caps,
            ..ExtendedDeviceAttributes::default()
        };
        command.answer(abi::device::CORE_OUT, &response);
        Ok(Undo::Nothing)
    }

    pub(super) fn query_port(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        if command.value(abi::device::PORT_NUM) != Some(1) {
            return Err(libc::EINVAL);
        }
        let ports = &self.adapter.fabric.ports;
        // PORT_DOWN and Polling, or PORT_ACTIVE and LinkUp.
        let (state, phys_state) = if ports.is_link_up(command.device) { (4, 5) } else { (1, 2) };
        let knobs = &self.adapter.settings.knobs;
        let lid = if knobs.is_ethernet() { 0 } else { ports.lid_of(command.device) };
        command.answer(
            abi::device::PORT_RESP,
            &PortAttributes {
                port_cap_flags: 0x2651_e848,
                max_msg_sz: 1 << 30,
                gid_tbl_len: GIDS as u32,
                pkey_tbl_len: PKEYS as u16,
                lid,
                sm_lid: u16::from(lid > 0),
                state,
                max_mtu: 5,
                active_mtu: knobs.active_mtu(),
                max_vl_num: 4,
                subnet_timeout: 18,
                active_width: 2,
                active_speed: 32,
                phys_state,
                link_layer: knobs.link_layer.number(),
                ..PortAttributes::default()
            },
        );
        Ok(Undo::Nothing)
    }

    pub(super) fn query_gid_entry(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let index = command.value(abi::device::ENTRY_INDEX).ok_or(libc::EINVAL)?;
        if command.value(abi::device::ENTRY_PORT) != Some(1) {
            return Err(libc::EINVAL);
        }
        let lid = Settings::lid(command.device);
        let row = self.gids(lid).get(index as usize).copied();
        let row = row.ok_or(libc::EINVAL)?.ok_or(libc::ENODATA)?;
        let interface = self.interface(command.device);
        command.answer(abi::device::ENTRY_RESP, &gid_entry(index as u32, row, interface));
        Ok(Undo::Nothing)
    }

    pub(super) fn query_gid_table(&mut self, command: &mut Command) -> Result<Undo, Errno> {
        let size = command.value(abi::device::TABLE_ENTRY_SIZE).unwrap_or_default();
        if size < size_of::<GidEntry>() as u64 {
            return Err(libc::EINVAL);
        }
        if command.length(abi::device::TABLE_ENTRIES) < size_of::<GidEntry>() {
            return Err(libc::EINVAL);
        }
        let room = command.length(abi::device::TABLE_ENTRIES) / size_of::<GidEntry>();
        let rows = self.gids(Settings::lid(command.device));
        let rows = rows.iter().enumerate().filter_map(|(index, row)| Some((index as u32, (*row)?)));
        let interface = self.interface(command.device);
        let mut entries: Vec<GidEntry> =
            rows.map(|(index, row)| gid_entry(index, row, interface)).collect();
        // ib_uverbs_query_gid_table
        if entries.len() > room {
            return Err(libc::EINVAL);
        }
        let count = entries.len() as u64;
        entries.resize(room, GidEntry::default());
        command.answer(abi::device::TABLE_ENTRIES, &entries[..]);
        command.answer(abi::device::TABLE_COUNT, &count);
        Ok(Undo::Nothing)
    }

    /// The number of the network interface behind a device's GIDs; 0 if there is none.
    fn interface(&self, device: usize) -> u32 {
        self.adapter.settings.ports.get(device).map_or(0, |port| port.index)
    }

    fn gids(&self, lid: u16) -> GidTable {
        self.adapter.fabric.ports.gids(&self.adapter.settings, lid)
    }
}

fn gid_entry(gid_index: u32, PortGid { kind, gid }: PortGid, netdev_ifindex: u32) -> GidEntry {
    GidEntry { gid, gid_index, port_num: 1, gid_type: kind as u32, netdev_ifindex }
}
