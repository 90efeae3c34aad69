//! A tag-matching shared receive queue, as the program's calls reach it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{EBUSY, EINVAL, ENOMEM, EOPNOTSUPP};
use tagmatch_model::{Fault, Nic};
use tagmatch_rdma_core_sys as sys;

use crate::bounce::Bounce;
use crate::device::Device;
use crate::engine::{Engine, QueueSizes, Record};
use crate::error::{errno, made};
use crate::event_trigger::{EventRequest, EventTrigger};
use crate::hidden_cq::HiddenCq;
use crate::progress_thread::{ProgressThread, StopWait, Woken};
use crate::verbs_wire::VerbsWire;

/// READs and FINs of one queue that the device has at once.
const REQUESTS: u32 = 256;
/// Milliseconds between the thread's looks at whether the program polls: at first, and most once it
/// has polled for a while.
const TICK_MS: i32 = 1;
const TICK_MS_MAX: i32 = 8;

/// A tag-matching shared receive queue.
pub(crate) struct TagQueue {
    pub(crate) device: Arc<Device>,
    /// Address of the program's completion queue.
    pub(crate) reports_to: usize,
    event_request: Arc<EventRequest>,
    pub(crate) cq: Arc<HiddenCq>,
    /// The attributes that the program asked for.
    pub(crate) attr: sys::ibv_srq_attr,
    engine: Mutex<Engine<VerbsWire>>,
    /// `Some` if the program's completion queue has a channel.
    trigger: Mutex<Option<EventTrigger>>,
    thread: Mutex<Option<ProgressThread>>,
    /// How often the program has polled.
    polls: AtomicU64,
}

impl TagQueue {
    /// Makes a queue.
    ///
    /// # Errors
    /// An error number.
    ///
    /// # Safety
    /// Attributes are those of `ibv_create_srq_ex(3)`; `event_request` is that of their completion
    /// queue.
    pub(crate) unsafe fn new(
        device: Arc<Device>,
        event_request: Arc<EventRequest>,
        attr: &mut sys::ibv_srq_init_attr_ex,
    ) -> Result<(Arc<Self>, *mut sys::ibv_srq), i32> {
        check(&device, attr)?;
        let verbs = device.verbs;
        let sizes = sizes(&device, attr);
        let entries = sizes.bounces.checked_add(REQUESTS).and_then(|sum| i32::try_from(sum).ok());
        let entries = entries.ok_or(ENOMEM)?;
        let config = device.settings.model(attr.tm_cap.max_num_tags, attr.tm_cap.max_ops);
        let nic = Nic::new(&config).map_err(|_| EINVAL)?;
        let messages = (sizes.bounces, device.settings.message_max);
        let mut plain = sys::ibv_srq_init_attr {
            srq_context: attr.srq_context,
            attr: sys::ibv_srq_attr { max_wr: sizes.bounces, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the context is open; domain and queue are alive, and the program must keep them.
        let (cq, bounce, trigger, srq) = unsafe {
            let cq = HiddenCq::new(verbs, device.context, entries).map_err(errno)?;
            let bounce = Bounce::new(verbs, attr.pd, messages, REQUESTS).map_err(errno)?;
            let has_channel = !(*attr.cq).channel.is_null();
            let trigger = has_channel.then(|| EventTrigger::new(&device, attr.pd, attr.cq));
            let trigger = trigger.transpose().map_err(errno)?;
            let srq = made((verbs.ibv_create_srq)(attr.pd, &raw mut plain)).map_err(errno)?;
            (cq, bounce, trigger, srq.as_ptr())
        };
        let cq = Arc::new(cq);
        let wire = VerbsWire::new(device.clone(), cq.clone(), bounce, (srq, attr.pd));
        let queue = Arc::new(TagQueue {
            device,
            reports_to: attr.cq.addr(),
            event_request,
            cq,
            attr: attr.attr,
            engine: Mutex::new(Engine::new(nic, wire, sizes)),
            trigger: Mutex::new(trigger),
            thread: Mutex::new(None),
            polls: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&queue);
        let mut tick_ms = TICK_MS;
        let turn = move |stop: &StopWait| {
            weak.upgrade().is_some_and(|queue| queue.turn(stop, &mut tick_ms))
        };
        let thread = ProgressThread::start(turn).map_err(|error| {
            // SAFETY: just made, and used by nobody.
            unsafe { (verbs.ibv_destroy_srq)(srq) };
            errno(error)
        })?;
        *queue.thread() = Some(thread);
        Ok((queue, srq))
    }

    /// Calls `act` with the engine. Causes an event if the program has asked for one and a
    /// completion is ready.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Engine<VerbsWire>) -> T) -> T {
        let mut engine = self.engine();
        let result = act(&mut engine);
        let is_ready = engine.is_ready();
        drop(engine);
        if is_ready && self.event_request.take() {
            self.cause_event();
        }
        result
    }

    fn engine(&self) -> MutexGuard<'_, Engine<VerbsWire>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cause_event(&self) {
        let trigger = self.trigger.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trigger) = &*trigger {
            trigger.pull();
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<ProgressThread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next completion, for the program's poll.
    pub(crate) fn poll(&self) -> Option<Record> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.with(|engine| {
            if !engine.is_ready() {
                engine.progress();
            }
            engine.next_completion()
        })
    }

    /// Asks the device for an event at the next completion on the hidden queue.
    pub(crate) fn arm(&self) -> bool {
        // SAFETY: the queue is alive.
        unsafe { (self.device.original.req_notify_cq)(self.cq.raw(), 0) == 0 }
    }

    /// Rules that the program has broken.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.engine().faults().to_vec()
    }

    /// Destroys the device's queue.
    ///
    /// # Errors
    /// An error number; the queue is unchanged then.
    pub(crate) fn destroy(&self) -> Result<(), i32> {
        let mut engine = self.engine();
        if engine.has_pairs() {
            return Err(EBUSY);
        }
        let srq = engine.wire_mut().srq;
        // SAFETY: the queue is alive, and not used by anybody who doesn't hold the engine.
        let answer = unsafe { (self.device.verbs.ibv_destroy_srq)(srq) };
        if answer != 0 {
            return Err(answer);
        }
        engine.close();
        drop(engine);
        self.stop();
        // The trigger goes before the program's completion queue, which may be destroyed next.
        self.trigger.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let thread = self.thread().take();
        drop(thread);
    }
}

/// The work of the queue's thread.
///
/// While the program polls, the thread only looks at the number of polls once a tick. Ticks get
/// longer while the program goes on polling: the thread takes time from the program where there are
/// no more processors than programs. While the program doesn't poll, the thread sleeps until the
/// device has an event.
impl TagQueue {
    /// Makes progress while the program doesn't poll. `false`: the thread shall stop.
    fn turn(&self, stop: &StopWait, tick_ms: &mut i32) -> bool {
        let before = self.polls.load(Ordering::Relaxed);
        // The device has events for this queue only if the program has asked for some of its own,
        // or this thread has.
        if !self.sleep(stop, *tick_ms) {
            return false;
        }
        *tick_ms = (*tick_ms * 2).min(TICK_MS_MAX);
        while self.polls.load(Ordering::Relaxed) == before {
            *tick_ms = TICK_MS;
            if !self.arm() {
                return stop.wait(-1, -1) != Woken::ToStop;
            }
            if !self.sleep(stop, if self.progress() { TICK_MS } else { -1 }) {
                return false;
            }
        }
        true
    }

    /// Sleeps until the device has an event, and makes progress then. `false`: the thread shall
    /// stop.
    fn sleep(&self, stop: &StopWait, timeout_ms: i32) -> bool {
        let woken = stop.wait(self.cq.fd(), timeout_ms);
        if woken == Woken::ByDevice && self.cq.take_events() {
            self.progress();
        }
        woken != Woken::ToStop
    }

    /// Makes progress. `true`: the NIC will do more after some time without any event, and no
    /// completion is ready.
    fn progress(&self) -> bool {
        self.with(|engine| {
            engine.progress();
            engine.has_work() && !engine.is_ready()
        })
    }
}

fn sizes(device: &Device, attr: &sys::ibv_srq_init_attr_ex) -> QueueSizes {
    QueueSizes {
        slots: attr.tm_cap.max_num_tags,
        receives: attr.attr.max_wr,
        elements: attr.attr.max_sge,
        bounces: device.settings.bounces().min(attr.attr.max_wr),
        requests: REQUESTS,
        read_max: device.message_max,
    }
}

/// Checks attributes as `ibv_create_srq_ex(3)` and mlx5 do.
fn check(device: &Device, attr: &sys::ibv_srq_init_attr_ex) -> Result<(), i32> {
    let wanted = sys::IBV_SRQ_INIT_ATTR_TYPE
        | sys::IBV_SRQ_INIT_ATTR_PD
        | sys::IBV_SRQ_INIT_ATTR_CQ
        | sys::IBV_SRQ_INIT_ATTR_TM;
    if attr.comp_mask & !(wanted | sys::IBV_SRQ_INIT_ATTR_XRCD) != 0 {
        return Err(EOPNOTSUPP);
    }
    let tags = 1..=device.settings.tags;
    let operations = 1..=device.settings.operations;
    let elements = 1..=device.srq_elements_max;
    let receives = 1..=device.srq_receives_max;
    let is_right = attr.comp_mask == wanted
        && !attr.pd.is_null()
        && tags.contains(&attr.tm_cap.max_num_tags)
        && operations.contains(&attr.tm_cap.max_ops)
        && elements.contains(&attr.attr.max_sge)
        && receives.contains(&attr.attr.max_wr);
    if is_right { Ok(()) } else { Err(EINVAL) }
}
