//! Queue pairs whose peers are at the other end of a network: the reliability of InfiniBand's
//! chapter 9.7, packet by packet.
//!
//! Inside the command a message is one packet with one number. On the network each packet of a
//! message has a number, so a request spans several (`Request::packets`). The sender keeps three
//! of them: `base`, before which all was acknowledged, `cursor`, which is sent next, and `end`,
//! which was never sent. It goes back to `base` if it hears of a gap, or nothing in time. No more
//! than a window of packets is under way, so that the buffer of the peer's socket is not overrun.

mod receiver;
mod sender;

use super::adapter::Adapter;
use super::connection::{after, out_path};
use super::packet::{Body, Message, Packet};
use super::queue_pair::{Qp, Transport};
use super::send::TagNotice;
use crate::gid::{GidKind, PortGid, Route, of_address};
use crate::knobs::is_one_partition;
use crate::memory::Memory;
use crate::roce::link::{ArrivedPacket, WirePath};
use crate::roce::packet::{RoceOperation, RocePacket};
use crate::wqe::AddressVector;

/// Packets that may be under way without an acknowledgement, and their bytes.
const WINDOW: u32 = 32;
const WINDOW_BYTES: u32 = 64 << 10;

impl Qp {
    /// Packets that may be under way.
    fn window(&self) -> u32 {
        (WINDOW_BYTES / u32::from(self.attributes.mtu())).min(WINDOW)
    }

    /// A packet to the peer of a reliable connection.
    fn wire_packet<M>(
        &self,
        adapter: &Adapter<M>,
        psn: u32,
        operation: RoceOperation,
        data: Vec<u8>,
    ) -> RocePacket {
        RocePacket {
            is_solicited: false,
            asks_acknowledge: false,
            pkey: self.pkey(adapter),
            to: self.attributes.0.dest_qp_num & 0xff_ffff,
            psn,
            operation,
            data,
        }
    }

    fn put_on_wire<M>(&self, adapter: &Adapter<M>, packet: &RocePacket) {
        if let Some(wire) = &self.wire {
            adapter.fabric.send_out(self.facts.lid, &wire.path, packet);
        }
    }

    /// The path of a datagram to a port at the other end of a network.
    pub(super) fn datagram_path<M>(
        &self,
        adapter: &Adapter<M>,
        to: &AddressVector,
    ) -> Option<WirePath> {
        let settings = &adapter.settings;
        let rows = adapter.fabric.ports.gids(settings, self.facts.lid);
        let row = (*rows.get(usize::from(to.sgid_index))?)?;
        out_path(row, &to.gid).filter(|_| settings.has_network())
    }

    /// Sends a datagram out.
    pub(super) fn send_datagram_out<M>(
        &mut self,
        adapter: &Adapter<M>,
        path: &WirePath,
        (to, qkey): (u32, u32),
        message: &Message,
    ) {
        let psn = self.psn;
        self.psn = after(psn, 1);
        let from = self.facts.number;
        let immediate = message.immediate;
        let packet = RocePacket {
            is_solicited: message.is_solicited,
            asks_acknowledge: false,
            pkey: self.pkey(adapter),
            to,
            psn,
            operation: RoceOperation::Datagram { qkey, from, immediate },
            data: message.bytes.to_vec(),
        };
        adapter.fabric.send_out(self.facts.lid, path, &packet);
    }

    /// Takes a packet that came over a network. Strangers' packets change nothing.
    pub(crate) fn hear_wire<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        arrived: ArrivedPacket,
    ) -> Vec<TagNotice> {
        let ArrivedPacket { lid, path, packet } = arrived;
        let is_here = lid == self.facts.lid
            && self.receives_now()
            && is_one_partition(packet.pkey, self.pkey(adapter));
        if !is_here {
            return Vec::new();
        }
        if self.facts.transport == Transport::Datagram {
            self.hear_datagram(adapter, path, packet);
            return Vec::new();
        }
        let is_peer = (self.wire.as_ref())
            .is_some_and(|wire| wire.path.from == path.to && wire.path.to == path.from);
        if !is_peer || matches!(packet.operation, RoceOperation::Datagram { .. }) {
            return Vec::new();
        }
        if packet.operation.is_answer() {
            self.hear_wire_answer(adapter, packet)
        } else {
            self.take_wire_request(adapter, packet)
        }
    }

    fn hear_datagram<M: Memory>(
        &mut self,
        adapter: &mut Adapter<M>,
        path: WirePath,
        packet: RocePacket,
    ) {
        let RoceOperation::Datagram { qkey, from, immediate } = packet.operation else { return };
        let mtu = adapter.settings.knobs.link_mtu();
        if qkey != self.attributes.0.qkey || packet.data.len() > mtu.into() {
            return;
        }
        let row = PortGid { kind: GidKind::RoceV2, gid: of_address(path.from) };
        let route = Some(Route { from: row, to: of_address(path.to) });
        let bytes = packet.data.into();
        let message = Message { bytes, immediate, is_solicited: packet.is_solicited };
        let packet = Packet {
            to: packet.to,
            from,
            to_lid: 0,
            from_lid: 0,
            pkey: packet.pkey,
            mtu,
            body: Body::Datagram { qkey, route, message: message.clone() },
        };
        self.take_datagram(adapter, &packet, route, &message);
    }
}
