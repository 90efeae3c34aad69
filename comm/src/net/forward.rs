//! [`forward_net!`](crate::forward_net) for transports around other transports.

/// Defines methods of [`Directory`](crate::net::Directory) and [`Net`](crate::net::Net) that call
/// the same method of the transport beneath, which is in the named field.
///
/// The implementer names the associated types. `send` and `test_send` need the `Send` of the
/// transport beneath; methods that take or return a receive need its `Receive`; methods that take
/// or return a message need its `Message`. `pause` needs the type parameter `N` to be the transport
/// beneath.
///
/// ```
/// use tagmatch::WaitPolicy;
/// use tagmatch_comm::forward_net;
/// use tagmatch_comm::net::{Directory, Net};
///
/// /// A transport whose blocking calls yield the processor at once.
/// struct Yielding<N> {
///     net: N,
/// }
///
/// impl<N: Net> Directory for Yielding<N> {
///     forward_net!(net: processes, own, name, admit);
/// }
///
/// impl<N: Net> Net for Yielding<N> {
///     type Send = N::Send;
///     type Receive = N::Receive;
///     type Message = N::Message;
///
///     forward_net!(net: send, inject, test_send, receive, receive_by_tag, test_receive, cancel);
///     forward_net!(net: probe, matched_probe, receive_message, is_down, watch, give_up, take_down);
///     forward_net!(net: free_tag_bits, has_left, failure, progress, pause, node, shares_memory, sleeper, sleep_max);
///     forward_net!(net: watch_after, reports_messages, arm, disarm, notify);
///
///     fn wait_policy(&self) -> WaitPolicy {
///         self.net.wait_policy().spin(0)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_net {
    ($net:ident: $($method:ident),+) => { $($crate::forward_net!(@$method $net);)+ };
    (@processes $net:ident) => {
        $crate::forward_net!(@call $net: fn processes(&self) -> u32);
    };
    (@own $net:ident) => {
        $crate::forward_net!(@call $net: fn own(&self) -> $crate::net::ProcessId);
    };
    (@name $net:ident) => {
        $crate::forward_net!(@call $net: fn name(&self, process: $crate::net::ProcessId)
            -> Option<$crate::net::ProcessName>);
    };
    (@admit $net:ident) => {
        $crate::forward_net!(@call $net: fn admit(&mut self, name: &$crate::net::ProcessName)
            -> Result<$crate::net::ProcessId, $crate::net::NetError>);
    };
    (@send $net:ident) => {
        $crate::forward_net!(@call $net: fn send(&mut self, to: $crate::net::ProcessId,
            tag: ::tagmatch::Tag, data: ::tagmatch::Buffer, mode: $crate::net::Mode) -> Self::Send);
    };
    (@inject $net:ident) => {
        $crate::forward_net!(@call $net: fn inject(&mut self, to: $crate::net::ProcessId,
            tag: ::tagmatch::Tag, data: &[u8]) -> Result<(), $crate::net::NetError>);
    };
    (@receive $net:ident) => {
        $crate::forward_net!(@call $net: fn receive(&mut self, pattern: $crate::net::Pattern,
            room: ::tagmatch::Buffer) -> Self::Receive);
    };
    (@receive_by_tag $net:ident) => {
        $crate::forward_net!(@call $net: fn receive_by_tag(&mut self, pattern: $crate::net::Pattern,
            room: ::tagmatch::Buffer) -> Self::Receive);
    };
    (@test_send $net:ident) => {
        $crate::forward_net!(@call $net: fn test_send(&mut self, send: &mut Self::Send)
            -> Option<Result<::tagmatch::Buffer, $crate::net::NetFailed>>);
    };
    (@test_receive $net:ident) => {
        $crate::forward_net!(@call $net: fn test_receive(&mut self, receive: &mut Self::Receive)
            -> Option<Result<$crate::net::Arrived, $crate::net::NetFailed>>);
    };
    (@cancel $net:ident) => {
        $crate::forward_net!(@call $net: fn cancel(&mut self, receive: &mut Self::Receive));
    };
    (@probe $net:ident) => {
        $crate::forward_net!(@call $net: fn probe(&mut self, pattern: $crate::net::Pattern)
            -> Option<$crate::net::Envelope>);
    };
    (@matched_probe $net:ident) => {
        $crate::forward_net!(@call $net: fn matched_probe(&mut self, pattern: $crate::net::Pattern)
            -> Option<(Self::Message, $crate::net::Envelope)>);
    };
    (@receive_message $net:ident) => {
        $crate::forward_net!(@call $net: fn receive_message(&mut self, message: Self::Message,
            room: ::tagmatch::Buffer) -> Self::Receive);
    };
    (@is_down $net:ident) => {
        $crate::forward_net!(@call $net: fn is_down(&self, process: $crate::net::ProcessId)
            -> bool);
    };
    (@watch $net:ident) => {
        $crate::forward_net!(@call $net: fn watch(&mut self, process: $crate::net::ProcessId));
    };
    (@watch_after $net:ident) => {
        $crate::forward_net!(@call $net: fn watch_after(&self) -> std::time::Duration);
    };
    (@has_left $net:ident) => {
        $crate::forward_net!(@call $net: fn has_left(&self, process: $crate::net::ProcessId)
            -> bool);
    };
    (@give_up $net:ident) => {
        $crate::forward_net!(@call $net: fn give_up(&mut self, process: $crate::net::ProcessId));
    };
    (@take_down $net:ident) => {
        $crate::forward_net!(@call $net: fn take_down(&mut self) -> Vec<$crate::net::ProcessId>);
    };
    (@free_tag_bits $net:ident) => {
        $crate::forward_net!(@call $net: fn free_tag_bits(&self)
            -> (::tagmatch::TagMask, ::tagmatch::Tag));
    };
    (@failure $net:ident) => {
        $crate::forward_net!(@call $net: fn failure(&self) -> Option<String>);
    };
    (@progress $net:ident) => {
        $crate::forward_net!(@call $net: fn progress(&mut self) -> usize);
    };
    (@wait_policy $net:ident) => {
        $crate::forward_net!(@call $net: fn wait_policy(&self) -> ::tagmatch::WaitPolicy);
    };
    (@pause $net:ident) => {
        fn pause() {
            N::pause();
        }
    };
    (@node $net:ident) => {
        $crate::forward_net!(@call $net: fn node(&self, process: $crate::net::ProcessId) -> u32);
    };
    (@shares_memory $net:ident) => {
        $crate::forward_net!(@call $net: fn shares_memory(&self) -> bool);
    };
    (@sleeper $net:ident) => {
        $crate::forward_net!(@call $net: fn sleeper(&self)
            -> Option<std::sync::Arc<dyn $crate::net::Sleeper>>);
    };
    (@sleep_max $net:ident) => {
        $crate::forward_net!(@call $net: fn sleep_max(&self) -> std::time::Duration);
    };
    (@arm $net:ident) => {
        $crate::forward_net!(@call $net: fn arm(&mut self) -> bool);
        $crate::forward_net!(@call $net: fn arrived(&self) -> u64);
    };
    (@reports_messages $net:ident) => {
        $crate::forward_net!(@call $net: fn reports_messages(&self) -> bool);
    };
    (@disarm $net:ident) => {
        $crate::forward_net!(@call $net: fn disarm(&mut self));
    };
    (@notify $net:ident) => {
        $crate::forward_net!(@call $net: fn notify(&mut self, waker: Option<&std::task::Waker>));
    };
    (@call $net:ident: fn $name:ident(&mut $this:ident $(, $of:ident: $is:ty)*) $(-> $to:ty)?) => {
        fn $name(&mut $this $(, $of: $is)*) $(-> $to)? {
            $this.$net.$name($($of),*)
        }
    };
    (@call $net:ident: fn $name:ident(&$this:ident $(, $of:ident: $is:ty)*) $(-> $to:ty)?) => {
        fn $name(&$this $(, $of: $is)*) $(-> $to)? {
            $this.$net.$name($($of),*)
        }
    };
}
