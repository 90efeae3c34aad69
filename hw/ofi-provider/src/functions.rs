//! The functions that send and receive. Those of fi_tagged(3) are those of fi_msg(3), with a tag.

/// Defines the functions that tagged and untagged messages have alike, and the table of all
/// functions. Where untagged messages have nothing, tagged ones have the parameters `$tag` and
/// `$ignore`.
///
/// A module that expands it defines what differs:
///
/// | name | what |
/// |---|---|
/// | `KIND` | `FI_MSG` or `FI_TAGGED` |
/// | `checked` | the tag of a message |
/// | `pattern` | the messages that a receive takes |
/// | `receive` | begins a receive |
/// | `recvmsg` | the function for receives with flags |
macro_rules! message_functions {
    ($ops:ident, $message:ident $(, $tag:ident, $ignore:ident)?) => {
        /// The functions of this module.
        pub(crate) const fn functions<P: Provider>() -> &'static sys::$ops {
            const {
                &sys::$ops {
                    size: size_of::<sys::$ops>(),
                    recv: Some(recv::<P>),
                    recvv: Some(recvv::<P>),
                    recvmsg: Some(recvmsg::<P>),
                    send: Some(send::<P>),
                    sendv: Some(sendv::<P>),
                    sendmsg: Some(sendmsg::<P>),
                    inject: Some(inject::<P>),
                    senddata: Some(senddata::<P>),
                    injectdata: Some(injectdata::<P>),
                }
            }
        }

        /// Begins a receive, whose flags are those of the endpoint.
        ///
        /// # Safety
        /// As fi_recv(3) and fi_trecv(3) ask.
        #[inline(always)]
        unsafe fn post<P: Provider>(
            endpoint: *mut sys::fid_ep, pieces: Pieces, pattern: Result<Pattern>,
            context: *mut c_void,
        ) -> isize {
            match pattern {
                // SAFETY: as the caller promises.
                Ok(pattern) => unsafe {
                    let kind = KIND;
                    receive::<P>(endpoint, Incoming { pieces, pattern, context, kind, flags: None })
                },
                Err(errno) => refuse(errno),
            }
        }

        unsafe extern "C" fn recv<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *mut c_void, length: usize, _region: *mut c_void,
            source: u64, $($tag: u64, $ignore: u64,)? context: *mut c_void,
        ) -> isize {
            let pattern = pattern::<P>(source $(, $tag, $ignore)?);
            // SAFETY: as the caller promises.
            unsafe { post::<P>(endpoint, Pieces::One(start, length), pattern, context) }
        }

        unsafe extern "C" fn recvv<P: Provider>(
            endpoint: *mut sys::fid_ep, parts: *const libc::iovec, _regions: *mut *mut c_void,
            count: usize, source: u64, $($tag: u64, $ignore: u64,)? context: *mut c_void,
        ) -> isize {
            let pattern = pattern::<P>(source $(, $tag, $ignore)?);
            // SAFETY: as the caller promises.
            unsafe { post::<P>(endpoint, Pieces::Several(parts, count), pattern, context) }
        }

        unsafe extern "C" fn send<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, _region: *mut c_void,
            destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            let message = Outgoing::new(Pieces::One(start, length), destination, context, KIND);
            // SAFETY: as the caller promises.
            unsafe { begin::<P>(endpoint, checked::<P>($($tag)?), message) }
        }

        unsafe extern "C" fn sendv<P: Provider>(
            endpoint: *mut sys::fid_ep, parts: *const libc::iovec, _regions: *mut *mut c_void,
            count: usize, destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            let message = Outgoing::new(Pieces::Several(parts, count), destination, context, KIND);
            // SAFETY: as the caller promises.
            unsafe { begin::<P>(endpoint, checked::<P>($($tag)?), message) }
        }

        unsafe extern "C" fn senddata<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, _region: *mut c_void,
            data: u64, destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            let message = Outgoing::new(Pieces::One(start, length), destination, context, KIND);
            let message = Outgoing { data: Some(data), ..message };
            // SAFETY: as the caller promises.
            unsafe { begin::<P>(endpoint, checked::<P>($($tag)?), message) }
        }

        unsafe extern "C" fn sendmsg<P: Provider>(
            endpoint: *mut sys::fid_ep, message: *const sys::$message, flags: u64,
        ) -> isize {
            // SAFETY: the caller gives a message, or null.
            let Some(message) = (unsafe { message.as_ref() }) else {
                return refuse(Errno::INVALID);
            };
            let pieces = Pieces::Several(message.msg_iov, message.iov_count);
            let outgoing = Outgoing {
                data: (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data),
                flags: Some(flags),
                ..Outgoing::new(pieces, message.addr, message.context, KIND)
            };
            // SAFETY: as the caller promises.
            unsafe { begin::<P>(endpoint, checked::<P>($(message.$tag)?), outgoing) }
        }

        unsafe extern "C" fn inject<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, destination: u64,
            $($tag: u64,)?
        ) -> isize {
            let message = Injected { start, length, destination, tag: 0, data: None };
            // SAFETY: the caller gives an endpoint and `length` bytes.
            unsafe { copy::<P>(endpoint, checked::<P>($($tag)?), message) }
        }

        unsafe extern "C" fn injectdata<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, data: u64,
            destination: u64, $($tag: u64,)?
        ) -> isize {
            let message = Injected { start, length, destination, tag: 0, data: Some(data) };
            // SAFETY: the caller gives an endpoint and `length` bytes.
            unsafe { copy::<P>(endpoint, checked::<P>($($tag)?), message) }
        }
    };
}

pub(crate) use message_functions;
