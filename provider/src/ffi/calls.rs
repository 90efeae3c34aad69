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
/// | `worker_tag` | the worker's tag for a message with this tag |
/// | `pattern` | the messages that a receive takes |
/// | `receive` | begins a receive |
/// | `recvmsg` | the function for receives with flags |
macro_rules! message_functions {
    ($table:ident: $ops:ident, $message:ident $(, $tag:ident, $ignore:ident)?) => {
        /// The functions of this module.
        pub(crate) static $table: sys::$ops = sys::$ops {
            size: size_of::<sys::$ops>(),
            recv: Some(recv),
            recvv: Some(recvv),
            recvmsg: Some(recvmsg),
            send: Some(send),
            sendv: Some(sendv),
            sendmsg: Some(sendmsg),
            inject: Some(inject),
            senddata: Some(senddata),
            injectdata: Some(injectdata),
        };

        /// Begins a receive, whose flags are those of the endpoint.
        ///
        /// # Safety
        /// As fi_recv(3) and fi_trecv(3) ask.
        #[inline(always)]
        unsafe fn post(
            endpoint: *mut sys::fid_ep, pieces: Pieces, source: u64, $($tag: u64, $ignore: u64,)?
            context: *mut c_void,
        ) -> isize {
            match pattern(source $(, $tag, $ignore)?) {
                // SAFETY: as the caller promises.
                Ok(pattern) => unsafe {
                    let kind = KIND;
                    receive(endpoint, Incoming { pieces, pattern, context, kind, flags: None })
                },
                Err(errno) => refuse(errno),
            }
        }

        unsafe extern "C" fn recv(
            endpoint: *mut sys::fid_ep, start: *mut c_void, length: usize, _region: *mut c_void,
            source: u64, $($tag: u64, $ignore: u64,)? context: *mut c_void,
        ) -> isize {
            let pieces = Pieces::One(start, length);
            // SAFETY: as the caller promises.
            unsafe { post(endpoint, pieces, source, $($tag, $ignore,)? context) }
        }

        unsafe extern "C" fn recvv(
            endpoint: *mut sys::fid_ep, parts: *const libc::iovec, _regions: *mut *mut c_void,
            count: usize, source: u64, $($tag: u64, $ignore: u64,)? context: *mut c_void,
        ) -> isize {
            let pieces = Pieces::Several(parts, count);
            // SAFETY: as the caller promises.
            unsafe { post(endpoint, pieces, source, $($tag, $ignore,)? context) }
        }

        /// Sends a message, whose flags are those of the endpoint.
        ///
        /// # Safety
        /// As fi_send(3) and fi_tsend(3) ask.
        #[inline]
        unsafe fn transmit(
            endpoint: *mut sys::fid_ep, pieces: Pieces, data: Option<u64>, destination: u64,
            $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            match worker_tag($($tag)?) {
                // SAFETY: as the caller promises.
                Ok(tag) => unsafe {
                    let (kind, flags) = (KIND, None);
                    let message = Outgoing { pieces, destination, tag, data, context, kind, flags };
                    transfer::send(endpoint, message)
                },
                Err(errno) => refuse(errno),
            }
        }

        unsafe extern "C" fn send(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, _region: *mut c_void,
            destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            let pieces = Pieces::One(start, length);
            // SAFETY: as the caller promises.
            unsafe { transmit(endpoint, pieces, None, destination, $($tag,)? context) }
        }

        unsafe extern "C" fn sendv(
            endpoint: *mut sys::fid_ep, parts: *const libc::iovec, _regions: *mut *mut c_void,
            count: usize, destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            let pieces = Pieces::Several(parts, count);
            // SAFETY: as the caller promises.
            unsafe { transmit(endpoint, pieces, None, destination, $($tag,)? context) }
        }

        unsafe extern "C" fn senddata(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, _region: *mut c_void,
            data: u64, destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            let pieces = Pieces::One(start, length);
            // SAFETY: as the caller promises.
            unsafe { transmit(endpoint, pieces, Some(data), destination, $($tag,)? context) }
        }

        unsafe extern "C" fn sendmsg(
            endpoint: *mut sys::fid_ep, message: *const sys::$message, flags: u64,
        ) -> isize {
            // SAFETY: the caller gives a message, or null.
            let Some(message) = (unsafe { message.as_ref() }) else {
                return refuse(Errno::INVALID);
            };
            match worker_tag($(message.$tag)?) {
                // SAFETY: as the caller promises.
                Ok(tag) => unsafe {
                    let outgoing = Outgoing {
                        pieces: Pieces::Several(message.msg_iov, message.iov_count),
                        destination: message.addr,
                        tag,
                        data: (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data),
                        context: message.context,
                        kind: KIND,
                        flags: Some(flags),
                    };
                    transfer::send(endpoint, outgoing)
                },
                Err(errno) => refuse(errno),
            }
        }

        unsafe extern "C" fn inject(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, destination: u64,
            $($tag: u64,)?
        ) -> isize {
            match worker_tag($($tag)?) {
                // SAFETY: the caller gives an endpoint and `length` bytes.
                Ok(tag) => unsafe {
                    transfer::inject(endpoint, start, length, destination, tag, None)
                },
                Err(errno) => refuse(errno),
            }
        }

        unsafe extern "C" fn injectdata(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, data: u64,
            destination: u64, $($tag: u64,)?
        ) -> isize {
            match worker_tag($($tag)?) {
                // SAFETY: the caller gives an endpoint and `length` bytes.
                Ok(tag) => unsafe {
                    transfer::inject(endpoint, start, length, destination, tag, Some(data))
                },
                Err(errno) => refuse(errno),
            }
        }
    };
}

pub(super) use message_functions;
