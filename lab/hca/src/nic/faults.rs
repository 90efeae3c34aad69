//! Faults that were asked for, as a program's part of the device meets them: events, and what
//! becomes of the queues that they are about; a device that is lost.

use std::collections::BTreeSet;

use super::adapter::AsyncNotice;
use super::queue_pair::{Receives, State};
use super::{Adapter, Function};
use crate::abi::event;
use crate::fault::{FaultEvent, FaultKind};
use crate::memory::Memory;

/// The only port of a device, which events of ports name.
const PORT: u64 = 1;

impl<M: Memory> Function<M> {
    /// Has a fault meet the queues of a device, or of all, or its port.
    pub(super) fn suffer(&mut self, device: Option<usize>, fault: FaultKind) {
        let contexts: BTreeSet<i32> = (self.adapter.contexts.iter())
            .filter(|(_, context)| !context.is_lost)
            .filter(|(_, context)| device.is_none_or(|device| context.device == device))
            .map(|(fd, _)| *fd)
            .collect();
        if contexts.is_empty() {
            return;
        }
        let counts = &mut self.adapter.counts.requested;
        let of_port = |event_type| Some(FaultEvent { event_type, number: None });
        let event = match fault {
            FaultKind::Outage(_) => {
                counts.outage += 1;
                None
            }
            FaultKind::LinkDown(_) => {
                counts.down += 1;
                of_port(event::PORT_ERR)
            }
            FaultKind::LinkUp => of_port(event::PORT_ACTIVE),
            FaultKind::Event(event) => {
                counts.event += 1;
                Some(event)
            }
            FaultKind::PartitionKey { .. } => {
                counts.pkey += 1;
                of_port(event::PKEY_CHANGE)
            }
            FaultKind::Gid { .. } => {
                counts.gid += 1;
                of_port(event::GID_CHANGE)
            }
            FaultKind::Overrun(number) => {
                for (of, cq) in &mut self.adapter.cqs {
                    let is_meant = number.is_none_or(|wanted| wanted == *of);
                    cq.overruns_next |= is_meant && contexts.contains(&cq.context);
                }
                None
            }
            FaultKind::Match(when) => {
                let srqs = self.adapter.srqs.values_mut();
                let lists = srqs.filter(|srq| contexts.contains(&srq.context));
                for tags in lists.filter_map(|srq| srq.tags.as_mut()) {
                    tags.nic.fail_at_match(when);
                }
                None
            }
            // They meet a program when it registers memory, and when the device is looked at.
            FaultKind::Registrations(_) | FaultKind::Fatal(_) => None,
        };
        if let Some(event) = event {
            self.suffer_event(&contexts, event);
        }
    }

    /// Has an event happen to the queues of these contexts, or to their ports.
    fn suffer_event(&mut self, contexts: &BTreeSet<i32>, fault: FaultEvent) {
        let is_meant = |context: i32, number: u32| {
            contexts.contains(&context) && fault.number.is_none_or(|wanted| wanted == number)
        };
        let event_type = fault.event_type;
        let notice = |context, element| AsyncNotice { context, element, event_type };
        let Adapter { cqs, srqs, notices, overrun, .. } = &mut self.adapter;
        match fault.event_type {
            event::CQ_ERR => {
                for (number, cq) in cqs.iter_mut() {
                    if is_meant(cq.context, *number) && !cq.is_overrun {
                        cq.is_overrun = true;
                        notices.push(notice(cq.context, cq.user_handle));
                        overrun.push(*number);
                    }
                }
            }
            event::SRQ_ERR => {
                let mut broken = Vec::new();
                for (number, srq) in srqs.iter_mut() {
                    if is_meant(srq.context, *number) && !srq.is_broken {
                        srq.is_broken = true;
                        notices.push(notice(srq.context, srq.user_handle));
                        broken.push(*number);
                    }
                }
                self.break_pairs(|qp| match qp.receives {
                    Receives::Shared(srq) => broken.contains(&srq),
                    Receives::Own(_) => false,
                });
            }
            event::QP_FATAL => self.break_pairs(|qp| is_meant(qp.facts.context, qp.number())),
            _ => notices.extend(contexts.iter().map(|context| notice(*context, PORT))),
        }
        self.break_overrun();
        self.say_notices();
    }

    /// Tells the program of each open device that was lost since the last call. Nothing happens on
    /// it any more.
    pub(crate) fn lose_contexts(&mut self) {
        let ports = &self.adapter.fabric.ports;
        let mut is_news = false;
        for (fd, context) in &mut self.adapter.contexts {
            if !context.is_lost && context.losses != ports.losses(context.device) {
                context.is_lost = true;
                is_news = true;
                self.adapter.counts.requested.fatal += 1;
                let event_type = event::DEVICE_FATAL;
                self.adapter.notices.push(AsyncNotice { context: *fd, element: 0, event_type });
            }
        }
        if is_news {
            self.say_notices();
        }
    }

    /// Whether an open device was lost.
    pub(crate) fn is_lost(&self, context: i32) -> bool {
        self.adapter.contexts.get(&context).is_some_and(|context| context.is_lost)
    }

    /// The open devices that were lost.
    pub(super) fn lost_contexts(&self) -> BTreeSet<i32> {
        let lost = self.adapter.contexts.iter().filter(|(_, context)| context.is_lost);
        lost.map(|(fd, _)| *fd).collect()
    }

    /// Queue pairs of a completion queue that was overrun fail: `mlx5_ib_cq_event`, and InfiniBand
    /// 11.6.3.
    pub(super) fn break_overrun(&mut self) {
        let overrun = std::mem::take(&mut self.adapter.overrun);
        if !overrun.is_empty() {
            self.break_pairs(|qp| {
                overrun.contains(&qp.facts.send_cq) || overrun.contains(&qp.facts.recv_cq)
            });
        }
    }

    /// Puts queue pairs into error, and says so.
    fn break_pairs(&mut self, is_broken: impl Fn(&super::Qp) -> bool) {
        let mut broken = Vec::new();
        for qp in self.qps.values_mut().filter(|qp| qp.state != State::Error && is_broken(qp)) {
            qp.notice(&mut self.adapter, event::QP_FATAL);
            broken.push((qp.number(), qp.enter_error(&mut self.adapter)));
        }
        for (number, notices) in broken {
            self.tell_tags(number, notices);
        }
    }
}
