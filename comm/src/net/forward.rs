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
///     forward_net!(net: progress, pause, node, sleeper, sleep_max, arm, disarm, notify);
///
///     fn spins(&self) -> u32 {
///         0
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_net {
    ($net:ident: $($method:ident),+) => { $($crate::forward_net!(@$method $net);)+ };
    (@processes $net:ident) => {
        fn processes(&self) -> u32 {
            self.$net.processes()
        }
    };
    (@own $net:ident) => {
        fn own(&self) -> $crate::net::ProcessId {
            self.$net.own()
        }
    };
    (@name $net:ident) => {
        fn name(&self, process: $crate::net::ProcessId) -> Option<$crate::net::ProcessName> {
            self.$net.name(process)
        }
    };
    (@admit $net:ident) => {
        fn admit(
            &mut self,
            name: &$crate::net::ProcessName,
        ) -> Result<$crate::net::ProcessId, $crate::net::NetError> {
            self.$net.admit(name)
        }
    };
    (@send $net:ident) => {
        fn send(
            &mut self,
            to: $crate::net::ProcessId,
            tag: ::tagmatch::Tag,
            data: ::tagmatch::Buffer,
            mode: $crate::net::Mode,
        ) -> Self::Send {
            self.$net.send(to, tag, data, mode)
        }
    };
    (@inject $net:ident) => {
        fn inject(
            &mut self,
            to: $crate::net::ProcessId,
            tag: ::tagmatch::Tag,
            data: &[u8],
        ) -> Result<(), $crate::net::NetError> {
            self.$net.inject(to, tag, data)
        }
    };
    (@receive $net:ident) => {
        fn receive(
            &mut self,
            pattern: $crate::net::Pattern,
            room: ::tagmatch::Buffer,
        ) -> Self::Receive {
            self.$net.receive(pattern, room)
        }
    };
    (@receive_by_tag $net:ident) => {
        fn receive_by_tag(
            &mut self,
            pattern: $crate::net::Pattern,
            room: ::tagmatch::Buffer,
        ) -> Self::Receive {
            self.$net.receive_by_tag(pattern, room)
        }
    };
    (@test_send $net:ident) => {
        fn test_send(
            &mut self,
            send: &mut Self::Send,
        ) -> Option<Result<::tagmatch::Buffer, $crate::net::NetFailed>> {
            self.$net.test_send(send)
        }
    };
    (@test_receive $net:ident) => {
        fn test_receive(
            &mut self,
            receive: &mut Self::Receive,
        ) -> Option<Result<$crate::net::Arrived, $crate::net::NetFailed>> {
            self.$net.test_receive(receive)
        }
    };
    (@cancel $net:ident) => {
        fn cancel(&mut self, receive: &mut Self::Receive) {
            self.$net.cancel(receive);
        }
    };
    (@probe $net:ident) => {
        fn probe(&mut self, pattern: $crate::net::Pattern) -> Option<$crate::net::Envelope> {
            self.$net.probe(pattern)
        }
    };
    (@matched_probe $net:ident) => {
        fn matched_probe(
            &mut self,
            pattern: $crate::net::Pattern,
        ) -> Option<(Self::Message, $crate::net::Envelope)> {
            self.$net.matched_probe(pattern)
        }
    };
    (@receive_message $net:ident) => {
        fn receive_message(
            &mut self,
            message: Self::Message,
            room: ::tagmatch::Buffer,
        ) -> Self::Receive {
            self.$net.receive_message(message, room)
        }
    };
    (@is_down $net:ident) => {
        fn is_down(&self, process: $crate::net::ProcessId) -> bool {
            self.$net.is_down(process)
        }
    };
    (@watch $net:ident) => {
        fn watch(&mut self, process: $crate::net::ProcessId) {
            self.$net.watch(process);
        }
    };
    (@give_up $net:ident) => {
        fn give_up(&mut self, process: $crate::net::ProcessId) {
            self.$net.give_up(process);
        }
    };
    (@take_down $net:ident) => {
        fn take_down(&mut self) -> Vec<$crate::net::ProcessId> {
            self.$net.take_down()
        }
    };
    (@progress $net:ident) => {
        fn progress(&mut self) -> usize {
            self.$net.progress()
        }
    };
    (@spins $net:ident) => {
        fn spins(&self) -> u32 {
            self.$net.spins()
        }
    };
    (@pause $net:ident) => {
        fn pause(turn: u32) -> bool {
            N::pause(turn)
        }
    };
    (@node $net:ident) => {
        fn node(&self, process: $crate::net::ProcessId) -> u32 {
            self.$net.node(process)
        }
    };
    (@sleeper $net:ident) => {
        fn sleeper(&self) -> Option<std::sync::Arc<dyn $crate::net::Sleeper>> {
            self.$net.sleeper()
        }
    };
    (@sleep_max $net:ident) => {
        fn sleep_max(&self) -> std::time::Duration {
            self.$net.sleep_max()
        }
    };
    (@arm $net:ident) => {
        fn arm(&mut self) -> bool {
            self.$net.arm()
        }
    };
    (@disarm $net:ident) => {
        fn disarm(&mut self) {
            self.$net.disarm();
        }
    };
    (@notify $net:ident) => {
        fn notify(&mut self, waker: Option<&std::task::Waker>) {
            self.$net.notify(waker);
        }
    };
}
