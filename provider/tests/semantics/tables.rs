//! The tables of functions. libfabric's inline functions call through them without a look at the
//! pointer, so none is null; a function that there isn't answers `-FI_ENOSYS`.

use crate::client::{Domain, Node, QueueSettings, alone_with, sys};

/// Calls a function with zeros.
trait WithZeros {
    fn answer(self) -> i64;
}

macro_rules! with_zeros {
    ($(($($argument:ident)*))*) => {
        $(
            impl<$($argument,)* R: TryInto<i64>> WithZeros
                for Option<unsafe extern "C" fn($($argument),*) -> R>
            {
                fn answer(self) -> i64 {
                    let function = self.expect("a function");
                    // SAFETY: a function that there isn't does nothing with its arguments, all of
                    // which are integers and pointers.
                    let answer = unsafe { function($(std::mem::zeroed::<$argument>()),*) };
                    answer.try_into().ok().expect("64 bits")
                }
            }
        )*
    };
}

with_zeros! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M) (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O)
    (A B C D E F G H I J K L M N O P)
}

/// Checks a table: its size, that no function is null, and that the named functions answer
/// `-FI_ENOSYS`.
macro_rules! check {
    ($table:expr => $($stub:ident)*) => {{
        let table = $table;
        // SAFETY: the provider's tables live as long as the process.
        let content = unsafe { &*table };
        assert_eq!(content.size, size_of_val(content));
        let words: *const usize = table.cast();
        for index in 0..content.size / size_of::<usize>() {
            // SAFETY: the index lies within the table, which has a number and pointers alone.
            assert_ne!(unsafe { *words.add(index) }, 0, "{}: {index}", stringify!($table));
        }
        $(assert_eq!(content.$stub.answer(), -i64::from(sys::FI_ENOSYS), stringify!($stub));)*
    }};
}

/// The table that all classes of objects have.
fn head<T>(object: *mut T) -> *mut sys::fi_ops {
    // SAFETY: every object of libfabric begins with a `fid`.
    unsafe { (*object.cast::<sys::fid>()).ops }
}

#[test]
fn no_function_is_missing_and_those_that_there_are_not_say_so() {
    let node = Node::new();
    let Node { domain, vector, queue, endpoint, .. } = node.clone();
    let counter = domain.counter();
    check!(head(domain.fabric) => bind control ops_open tostr ops_set);
    check!(domain.fabric_functions() => passive_ep wait_open);
    check!(head(domain.domain) => control ops_open tostr ops_set);
    check!(domain.functions() =>
        scalable_ep poll_open stx_ctx srx_ctx query_collective);
    check!(head(vector.vector) => bind control ops_open tostr ops_set);
    check!(vector.functions() => insertsvc insertsym av_set);
    check!(head(queue.queue) => bind ops_open tostr ops_set);
    check!(queue.functions() =>);
    check!(head(counter.counter) => bind control ops_open tostr ops_set);
    check!(counter.functions() =>);
    check!(head(endpoint.endpoint) => ops_open tostr ops_set);
    // SAFETY: the provider gave the objects.
    let (parts, registrations) = unsafe { (&*endpoint.endpoint, (*domain.domain).mr) };
    check!(registrations =>);
    check!(parts.ops => tx_ctx rx_ctx rx_size_left tx_size_left);
    check!(parts.cm => setname getpeer connect listen accept reject shutdown join);
    check!(parts.msg =>);
    check!(parts.tagged =>);
    check!(parts.rma => read readv readmsg write writev writemsg inject writedata injectdata);
    check!(parts.atomic =>
        write writev writemsg inject readwrite readwritev readwritemsg compwrite compwritev
        compwritemsg writevalid readwritevalid compwritevalid);
    check!(parts.collective =>
        barrier broadcast alltoall allreduce allgather reduce_scatter reduce scatter gather msg
        barrier2);
    let events = domain.events();
    check!(head(events) => bind control ops_open tostr ops_set);
    // SAFETY: the provider gave the event queue.
    check!(unsafe { (*events).ops } =>);
    crate::client::close(events.cast()).unwrap();
    counter.close().unwrap();
    node.close();
}

/// Calls the functions that there are not, each several times.
fn call_all(parts: &sys::fid_ep) {
    macro_rules! calls {
        ($table:expr => $($function:ident)*) => {{
            // SAFETY: the provider's tables live as long as the process.
            let table = unsafe { &*$table };
            $((0..3).for_each(|_| assert!(table.$function.answer() < 0));)*
        }};
    }
    calls!(parts.rma => read readv readmsg write writev writemsg inject writedata injectdata);
    calls!(parts.atomic =>
        write writev writemsg inject readwrite readwritev readwritemsg compwrite compwritev
        compwritemsg writevalid readwritevalid compwritevalid);
    calls!(parts.collective => barrier broadcast msg);
}

/// What `call_all` makes the provider name: each operation by its name in libfabric's interface.
const NAMES: [&str; 22] = [
    "fi_read",
    "fi_readv",
    "fi_readmsg",
    "fi_write",
    "fi_writev",
    "fi_writemsg",
    "fi_inject_write",
    "fi_writedata",
    "fi_inject_writedata",
    "fi_atomic",
    "fi_atomicv",
    "fi_atomicmsg",
    "fi_inject_atomic",
    "fi_fetch_atomic",
    "fi_fetch_atomicv",
    "fi_fetch_atomicmsg",
    "fi_compare_atomic",
    "fi_compare_atomicv",
    "fi_compare_atomicmsg",
    "fi_barrier",
    "fi_broadcast",
    "fi_collective",
];

/// Some MPI libraries drop the answer and wait for ever.
#[test]
fn the_first_call_of_an_operation_that_there_is_not_is_told_with_what_to_set() {
    let test = "tables::the_first_call_of_an_operation_that_there_is_not_is_told_with_what_to_set";
    let words = alone_with(test, &[], || {
        let node = Node::new();
        // SAFETY: the provider gave the endpoint.
        call_all(unsafe { &*node.endpoint.endpoint });
        node.close();
    });
    let Some(words) = words else { return };
    let notices = words.lines().filter_map(|line| {
        let rest = line.strip_prefix("tagmatch: the program has called ")?;
        assert!(rest.contains("MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL") && rest.contains("Intel MPI"));
        rest.split_once(',').map(|(name, _)| name)
    });
    assert_eq!(notices.collect::<Vec<_>>(), NAMES, "{words}");
}

#[test]
fn every_object_has_its_class_and_the_callers_context() {
    let node = Node::new();
    let Node { domain, vector, queue, endpoint, .. } = node.clone();
    // SAFETY: every object of libfabric begins with a `fid`.
    let class = |object: *mut sys::fid| unsafe { (*object).fclass };
    assert_eq!(class(domain.fabric.cast()), sys::FI_CLASS_FABRIC);
    assert_eq!(class(domain.domain.cast()), sys::FI_CLASS_DOMAIN);
    assert_eq!(class(vector.vector.cast()), sys::FI_CLASS_AV);
    assert_eq!(class(queue.queue.cast()), sys::FI_CLASS_CQ);
    assert_eq!(class(endpoint.endpoint.cast()), sys::FI_CLASS_EP);
    node.close();
}

#[test]
fn missing_arguments_are_refused() {
    let domain = Domain::new();
    let queue = domain.queue(QueueSettings::default());
    let refused = -i64::from(sys::FI_EINVAL);
    // Each has a domain and no other argument.
    macro_rules! refuses {
        ($($function:ident($($argument:expr),*))*) => {
            $(assert_eq!(
                i64::from(crate::client::call!(domain.functions(), $function($($argument),*))),
                refused,
                stringify!($function)
            );)*
        };
    }
    let object = domain.domain;
    let null = std::ptr::null_mut();
    refuses! {
        av_open(object, std::ptr::null_mut(), std::ptr::null_mut(), null)
        cq_open(object, std::ptr::null_mut(), std::ptr::null_mut(), null)
        cntr_open(object, std::ptr::null_mut(), std::ptr::null_mut(), null)
        endpoint(object, std::ptr::null_mut(), std::ptr::null_mut(), null)
        endpoint(object, domain.info, std::ptr::null_mut(), null)
    }
    queue.close().unwrap();
    domain.close();
}
