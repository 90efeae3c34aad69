//! A port: its limits, and connecting queue pairs through it.

use std::io;

use tagmatch_device::{DeviceError, InCall};
use tagmatch_rdma_core_sys as sys;

use super::address::VerbsAddress;
use super::config::VerbsConfig;
use super::context::Context;
use super::gid::{self, Chosen};
use super::object::Qp;
use super::partition::{self, Partition};
use super::wire::LinkEnd;

/// A port of an open device.
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) link_layer: u8,
    pub(super) lid: u16,
    pub(super) gid: Chosen,
    pub(super) partition: Partition,
    /// The path MTU.
    pub(super) mtu: sys::ibv_mtu,
    /// Most bytes that one READ request may ask for.
    pub(super) read_max: u64,
    /// READs that a queue pair serves at a time.
    pub(super) reads_served: u8,
    /// READs that a queue pair may have under way.
    pub(super) reads_asked: u8,
    /// Whether the device is soft-RoCE, for which seven retries are for ever.
    is_soft_roce: bool,
    config: VerbsConfig,
}

/// The number of soft-RoCE's vendor, since Linux 5.6 and before (`RXE_VENDOR_ID`).
const SOFT_ROCE_VENDORS: [u32; 2] = [0x00ff_ffff, 0];

/// The smaller of the device's limit and the one asked for, at least one.
fn limited(count: i32, wanted: u8) -> u8 {
    u8::try_from(count.clamp(1, i32::from(wanted))).unwrap_or(1)
}

/// The value of `enum ibv_mtu` for a path MTU in bytes: 1 for 256, and so on.
fn mtu_code(bytes: u16) -> sys::ibv_mtu {
    u32::from(bytes).ilog2().saturating_sub(7)
}

impl Port {
    /// The port that was chosen with the device.
    pub(super) fn open(
        context: &Context,
        attr: &sys::ibv_device_attr,
        config: &VerbsConfig,
    ) -> Result<Self, DeviceError> {
        if let Some(port) = config.port
            && port > attr.phys_port_cnt
        {
            return Err(DeviceError::BadSetting {
                setting: "port",
                value: port.into(),
                range: "the number of one of the device's ports",
            });
        }
        let number = context.port;
        let down = DeviceError::System {
            call: "ibv_query_port",
            source: io::Error::from_raw_os_error(libc::ENETDOWN),
            hint: "; no port of the device is active (ibv_devinfo shows their state)",
        };
        if number == 0 {
            return Err(down);
        }
        let port = context.port(number).in_call("ibv_query_port")?;
        if port.state != sys::IBV_PORT_ACTIVE {
            return Err(down);
        }
        Ok(Port {
            number,
            link_layer: port.link_layer,
            lid: port.lid,
            gid: gid::choose(context, number, &port, config.gid_index)?,
            partition: partition::choose(context, number, &port, config.partition_key)?,
            mtu: port.active_mtu.min(config.mtu.map_or(u32::MAX, mtu_code)),
            read_max: u64::from(port.max_msg_sz).clamp(1, 1 << 31),
            reads_served: limited(attr.max_qp_rd_atom, config.reads_max),
            reads_asked: limited(attr.max_qp_init_rd_atom, config.reads_max),
            is_soft_roce: SOFT_ROCE_VENDORS.contains(&attr.vendor_id),
            config: config.clone(),
        })
    }

    /// The path to a worker: by GID on Ethernet, by LID within an InfiniBand subnet.
    pub(super) fn path(&self, to: &VerbsAddress) -> sys::ibv_ah_attr {
        let mut attr = sys::ibv_ah_attr::zeroed();
        attr.dlid = to.lid;
        attr.sl = self.config.service_level_or_default();
        attr.port_num = self.number;
        if self.link_layer == sys::IBV_LINK_LAYER_ETHERNET || to.lid == 0 {
            attr.is_global = 1;
            attr.grh.dgid = to.gid.raw();
            attr.grh.sgid_index = self.gid.index;
            attr.grh.hop_limit = 64;
            attr.grh.traffic_class = self.config.traffic_class_or_default();
        }
        attr
    }

    /// Assigns the port to a queue pair (state INIT). The peer may be told its number from then on.
    pub(super) fn initialise(&self, qp: &Qp) -> io::Result<()> {
        let mut attr = sys::ibv_qp_attr::zeroed();
        attr.qp_state = sys::IBV_QPS_INIT;
        attr.port_num = self.number;
        attr.pkey_index = self.partition.index;
        // Remote write access is for signals, which are RDMA writes of zero bytes. No memory is
        // registered for remote writing.
        attr.qp_access_flags = sys::IBV_ACCESS_REMOTE_READ | sys::IBV_ACCESS_REMOTE_WRITE;
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_PKEY_INDEX
            | sys::IBV_QP_PORT
            | sys::IBV_QP_ACCESS_FLAGS;
        qp.modify(&mut attr, mask)
    }

    /// Connects a queue pair with the peer's queue pair `remote_end.qp_num` (states RTR and RTS).
    /// `psn` is our first packet sequence number.
    pub(super) fn connect(
        &self,
        qp: &Qp,
        to: &VerbsAddress,
        psn: u32,
        remote_end: &LinkEnd,
    ) -> io::Result<()> {
        let mut attr = sys::ibv_qp_attr::zeroed();
        attr.qp_state = sys::IBV_QPS_RTR;
        attr.ah_attr = self.path(to);
        attr.path_mtu = self.mtu.min(remote_end.mtu.into());
        attr.dest_qp_num = remote_end.qp_num;
        attr.rq_psn = remote_end.psn;
        attr.max_dest_rd_atomic = self.reads_served;
        attr.min_rnr_timer = self.config.rnr_timer;
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        qp.modify(&mut attr, mask)?;
        attr.qp_state = sys::IBV_QPS_RTS;
        attr.sq_psn = psn;
        attr.timeout = self.config.ack_timeout_or_default();
        attr.retry_cnt = self.config.retry_count_or_default(self.is_soft_roce);
        attr.rnr_retry = self.config.rnr_retry;
        attr.max_rd_atomic = self.reads_asked.min(remote_end.reads_max);
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY
            | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        qp.modify(&mut attr, mask)
    }
}
