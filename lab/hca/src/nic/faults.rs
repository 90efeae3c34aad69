//! Asynchronous events that were asked for, and what becomes of the queues that they are about.

use super::adapter::AsyncNotice;
use super::queue_pair::{Receives, State};
use super::{Adapter, Function};
use crate::abi::event;
use crate::fault::FaultEvent;
use crate::memory::Memory;

/// The only port of a device, which events of ports name.
const PORT: u64 = 1;

impl<M: Memory> Function<M> {
    /// Has an event happen to the queues of a device, or of all, or to its port.
    pub(super) fn suffer(&mut self, device: Option<usize>, fault: FaultEvent) {
        let contexts: Vec<i32> = (self.adapter.contexts.iter())
            .filter(|(_, context)| device.is_none_or(|device| context.device == device))
            .map(|(fd, _)| *fd)
            .collect();
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
