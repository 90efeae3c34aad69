//! What a provider has, and what a test lets it do: it keeps what the device asks of it, and ends
//! operations when the test wants it.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;

use tagmatch_ofi_sys as sys;

/// A receive, or a look, that the provider has.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub(super) context: *mut c_void,
    pub(super) memory: (*mut u8, usize),
    /// The sender that the provider compares.
    pub from: sys::fi_addr_t,
    pub tag: u64,
    pub ignored: u64,
    /// `FI_PEEK` and `FI_CLAIM`.
    pub flags: u64,
}

/// Something that was sent.
#[derive(Clone, Debug)]
pub struct Gone {
    pub(super) context: *mut c_void,
    pub to: sys::fi_addr_t,
    pub tag: u64,
    pub data: u64,
    pub bytes: Vec<u8>,
    /// Where the device has the bytes.
    pub start: *const u8,
    /// The level of completion that was asked for.
    pub flags: u64,
}

/// What the provider has, and what it is to do.
#[derive(Default)]
pub struct Nic {
    /// It has no room now.
    pub is_full: bool,
    /// Sends don't end by themselves.
    pub keeps_sends: bool,
    /// Cancels aren't answered.
    pub keeps_cancelled: bool,
    pub receives: Vec<Asked>,
    pub looks: Vec<Asked>,
    pub sent: Vec<Gone>,
    /// Keys, places and lengths of the memory that peers may write to.
    pub registered: Vec<(u64, *mut u8, usize)>,
    /// What a look finds: tag, data and length.
    pub waiting: Option<(u64, u64, usize)>,
    pub(super) ended: VecDeque<sys::fi_cq_err_entry>,
}

impl Nic {
    /// A message arrives for the receive that was posted first of those that match.
    pub fn arrive(&mut self, tag: u64, data: u64, bytes: &[u8]) {
        let matches = |asked: &Asked| (tag ^ asked.tag) & !asked.ignored == 0;
        let place = self.receives.iter().position(matches).expect("a receive for it");
        let Asked { context, memory: (start, room), .. } = self.receives.remove(place);
        let len = bytes.len().min(room);
        // SAFETY: the device has lent this memory until the receive ends.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), len) };
        let olen = bytes.len() - len;
        let err = if olen > 0 { sys::FI_ETRUNC } else { 0 };
        self.end(sys::fi_cq_err_entry { len, olen, err, tag, data, ..of(context) });
    }

    /// A peer writes.
    pub fn write(&mut self, wanted: u64, address: u64, bytes: &[u8]) {
        let is_it = |(key, ..): &&(u64, *mut u8, usize)| *key == wanted;
        let (_, start, length) = *self.registered.iter().find(is_it).expect("a key");
        let place = usize::try_from(address).unwrap();
        assert!(place + bytes.len() <= length);
        // SAFETY: the device has lent this memory as long as it is registered.
        unsafe { start.add(place).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// One of the sends that were kept ends.
    pub fn end_send(&mut self, place: usize) {
        let context = std::mem::replace(&mut self.sent[place].context, null_mut());
        assert!(!context.is_null(), "it has ended already");
        self.end(of(context));
    }

    /// One of them fails.
    pub fn fail_send(&mut self, place: usize) {
        let context = std::mem::replace(&mut self.sent[place].context, null_mut());
        self.end(sys::fi_cq_err_entry { err: sys::FI_EIO, ..of(context) });
    }

    /// The sends that were kept end.
    pub fn end_sends(&mut self) {
        self.keeps_sends = false;
        let contexts: Vec<_> = self.sent.iter().map(|sent| sent.context).collect();
        self.sent.iter_mut().for_each(|sent| sent.context = null_mut());
        for context in contexts.into_iter().filter(|context| !context.is_null()) {
            self.end(of(context));
        }
    }

    /// Answers the cancel of the receive that was posted first of those with this tag.
    pub fn cancelled(&mut self, tag: u64) {
        let place = self.receives.iter().position(|asked| asked.tag == tag).expect("it is there");
        let Asked { context, .. } = self.receives.remove(place);
        self.end(sys::fi_cq_err_entry { err: sys::FI_ECANCELED, ..of(context) });
    }

    pub(super) fn end(&mut self, entry: sys::fi_cq_err_entry) {
        self.ended.push_back(entry);
    }

    pub(super) fn send(&mut self, mut gone: Gone) -> isize {
        if self.is_full {
            return -(sys::FI_EAGAIN as isize);
        }
        if !self.keeps_sends && !gone.context.is_null() {
            self.end(of(std::mem::replace(&mut gone.context, null_mut())));
        }
        self.sent.push(gone);
        0
    }

    pub(super) fn receive(&mut self, asked: Asked) -> isize {
        if self.is_full {
            return -(sys::FI_EAGAIN as isize);
        }
        if asked.flags & sys::FI_PEEK == 0 {
            self.receives.push(asked);
            return 0;
        }
        self.looks.push(asked);
        let entry = of(asked.context);
        self.end(match self.waiting {
            Some((tag, data, len)) => sys::fi_cq_err_entry { len, tag, data, ..entry },
            None => sys::fi_cq_err_entry { err: sys::FI_ENOMSG, ..entry },
        });
        0
    }
}

/// The entry of an operation that ends.
pub(super) fn of(context: *mut c_void) -> sys::fi_cq_err_entry {
    sys::fi_cq_err_entry { op_context: context, ..sys::fi_cq_err_entry::zeroed() }
}
