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
/// | `post` | posts a receive |
/// | `recvmsg` | the function for receives with flags |
///
/// Each function has a closure of its own around what the endpoint does: the compiler inlines a
/// closure that is called in one place, and the short ways of messages need that.
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

        unsafe extern "C" fn recv<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *mut c_void, length: usize, _region: *mut c_void,
            source: u64, $($tag: u64, $ignore: u64,)? context: *mut c_void,
        ) -> isize {
            // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
            enter_at_once(move || unsafe {
                let pattern = pattern::<P>(source $(, $tag, $ignore)?)?;
                let pieces = Pieces::One(start, length);
                let incoming = Incoming { pieces, pattern, context, kind: KIND, flags: None };
                with_endpoint::<P, _>(endpoint, |endpoint, sinks| post::<P>(endpoint, sinks, &incoming))
            })
        }

        unsafe extern "C" fn recvv<P: Provider>(
            endpoint: *mut sys::fid_ep, parts: *const libc::iovec, _regions: *mut *mut c_void,
            count: usize, source: u64, $($tag: u64, $ignore: u64,)? context: *mut c_void,
        ) -> isize {
            // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
            enter_at_once(move || unsafe {
                let pattern = pattern::<P>(source $(, $tag, $ignore)?)?;
                let pieces = Pieces::Several(parts, count);
                let incoming = Incoming { pieces, pattern, context, kind: KIND, flags: None };
                with_endpoint::<P, _>(endpoint, |endpoint, sinks| post::<P>(endpoint, sinks, &incoming))
            })
        }

        unsafe extern "C" fn send<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, _region: *mut c_void,
            destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            // SAFETY: the caller gives an endpoint, and keeps the promises of fi_tagged(3).
            enter_at_once(move || unsafe {
                let tag = checked::<P>($($tag)?)?;
                let pieces = Pieces::One(start, length);
                let message = Outgoing { tag, ..Outgoing::new(pieces, destination, context, KIND) };
                with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.send(sinks, &message))
            })
        }

        unsafe extern "C" fn sendv<P: Provider>(
            endpoint: *mut sys::fid_ep, parts: *const libc::iovec, _regions: *mut *mut c_void,
            count: usize, destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            // SAFETY: as the caller promises.
            enter_at_once(move || unsafe {
                let tag = checked::<P>($($tag)?)?;
                let pieces = Pieces::Several(parts, count);
                let message = Outgoing { tag, ..Outgoing::new(pieces, destination, context, KIND) };
                send_any::<P>(endpoint, &message)
            })
        }

        unsafe extern "C" fn senddata<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, _region: *mut c_void,
            data: u64, destination: u64, $($tag: u64,)? context: *mut c_void,
        ) -> isize {
            // SAFETY: as the caller promises.
            enter_at_once(move || unsafe {
                let tag = checked::<P>($($tag)?)?;
                let pieces = Pieces::One(start, length);
                let message = Outgoing::new(pieces, destination, context, KIND);
                let message = Outgoing { tag, data: Some(data), ..message };
                with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.send(sinks, &message))
            })
        }

        unsafe extern "C" fn sendmsg<P: Provider>(
            endpoint: *mut sys::fid_ep, message: *const sys::$message, flags: u64,
        ) -> isize {
            // SAFETY: the caller gives a message, or null; the rest is as the caller promises.
            enter_at_once(move || unsafe {
                let message = message.as_ref().ok_or(Errno::INVALID)?;
                if flags & !P::CALL_SEND_FLAGS != 0 {
                    return Err(Errno::BAD_FLAGS);
                }
                let tag = checked::<P>($(message.$tag)?)?;
                let pieces = Pieces::Several(message.msg_iov, message.iov_count);
                let outgoing = Outgoing {
                    tag,
                    data: (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(message.data),
                    flags: Some(flags),
                    ..Outgoing::new(pieces, message.addr, message.context, KIND)
                };
                send_any::<P>(endpoint, &outgoing)
            })
        }

        unsafe extern "C" fn inject<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, destination: u64,
            $($tag: u64,)?
        ) -> isize {
            // SAFETY: the caller gives an endpoint and `length` bytes.
            enter_at_once(move || unsafe {
                let tag = checked::<P>($($tag)?)?;
                let message = Injected { start, length, destination, tag, data: None };
                with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.inject(sinks, message))
            })
        }

        unsafe extern "C" fn injectdata<P: Provider>(
            endpoint: *mut sys::fid_ep, start: *const c_void, length: usize, data: u64,
            destination: u64, $($tag: u64,)?
        ) -> isize {
            // SAFETY: the caller gives an endpoint and `length` bytes.
            enter_at_once(move || unsafe {
                let tag = checked::<P>($($tag)?)?;
                let message = Injected { start, length, destination, tag, data: Some(data) };
                with_endpoint::<P, _>(endpoint, |endpoint, sinks| endpoint.inject(sinks, message))
            })
        }
    };
}

pub(crate) use message_functions;
