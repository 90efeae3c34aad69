//! Event queues: fi_eq(3). The provider has no events of its own.

use std::ptr;

use crate::client::{Code, Domain, Node, bind, call, close, code, sys};

/// `fi_eq_write`.
fn write(queue: *mut sys::fid_eq, event: u32, content: &[u8]) -> Code {
    // SAFETY: the provider gave the queue.
    let functions = unsafe { (*queue).ops };
    code(call!(functions, write(queue, event, content.as_ptr().cast(), content.len(), 0)))
}

/// `fi_eq_read`: the event and its content.
fn read(queue: *mut sys::fid_eq, room: usize, flags: u64) -> Result<(u32, Vec<u8>), i32> {
    let mut event = 0;
    let mut content = vec![0; room];
    let to = content.as_mut_ptr().cast();
    // SAFETY: as above.
    let functions = unsafe { (*queue).ops };
    let length = code(call!(functions, read(queue, &raw mut event, to, room, flags)))?;
    content.truncate(length);
    Ok((event, content))
}

#[test]
fn events_that_a_program_writes_are_read_in_order() {
    let domain = Domain::new();
    let flags = sys::FI_WRITE;
    let queue = domain.events_of(sys::fi_eq_attr { flags, ..sys::fi_eq_attr::zeroed() }).unwrap();
    assert_eq!(read(queue, 8, 0), Err(sys::FI_EAGAIN));
    assert_eq!(write(queue, 7, b"one"), Ok(3));
    assert_eq!(write(queue, 8, b""), Ok(0));
    assert_eq!(read(queue, 2, 0), Err(sys::FI_ETOOSMALL));
    assert_eq!(read(queue, 3, sys::FI_PEEK), Ok((7, b"one".to_vec())));
    assert_eq!(read(queue, 8, 0), Ok((7, b"one".to_vec())));
    assert_eq!(read(queue, 0, 0), Ok((8, vec![])));
    assert_eq!(read(queue, 8, 0), Err(sys::FI_EAGAIN));
    close(queue.cast()).unwrap();
    assert_eq!(write(queue, 7, b"one"), Err(sys::FI_EBADF));
    domain.close();
}

#[test]
fn only_a_queue_that_was_opened_for_it_is_written() {
    let domain = Domain::new();
    let queue = domain.events();
    assert_eq!(write(queue, 7, b"one"), Err(sys::FI_EINVAL));
    close(queue.cast()).unwrap();
    let flags = sys::FI_PEEK;
    let wrong = domain.events_of(sys::fi_eq_attr { flags, ..sys::fi_eq_attr::zeroed() });
    assert_eq!(wrong, Err(sys::FI_EBADFLAGS));
    domain.close();
}

/// It holds so many events, and events of so many bytes, that the bounds are no program's.
#[test]
fn a_full_queue_takes_an_event_again_when_one_was_read() {
    let domain = Domain::new();
    let flags = sys::FI_WRITE;
    let queue = domain.events_of(sys::fi_eq_attr { flags, ..sys::fi_eq_attr::zeroed() }).unwrap();
    let mut count = 0;
    while count < 1 << 20 && write(queue, count, b"x") == Ok(1) {
        count += 1;
    }
    assert_eq!(write(queue, count, b"x"), Err(sys::FI_EAGAIN));
    assert_eq!(read(queue, 1, 0), Ok((0, b"x".to_vec())));
    assert_eq!(write(queue, count, b"x"), Ok(1));
    assert_eq!(write(queue, 0, b"x"), Err(sys::FI_EAGAIN));
    for number in 1..=count {
        assert_eq!(read(queue, 1, 0), Ok((number, b"x".to_vec())));
    }
    assert_eq!(write(queue, 0, &vec![0; 1 << 20]), Err(sys::FI_EINVAL));
    assert_eq!(read(queue, 1, 0), Err(sys::FI_EAGAIN));
    close(queue.cast()).unwrap();
    domain.close();
}

#[test]
fn nothing_is_opened_in_a_fabric_that_was_closed() {
    let domain = Domain::new();
    domain.close_domain().unwrap();
    domain.close_fabric().unwrap();
    assert_eq!(domain.events_of(sys::fi_eq_attr::zeroed()), Err(sys::FI_EBADF));
    let mut opened = ptr::null_mut();
    let functions = domain.fabric_functions();
    let answer =
        call!(functions, domain(domain.fabric, domain.info, &raw mut opened, ptr::null_mut()));
    assert_eq!((code(answer), opened), (Err(sys::FI_EBADF), ptr::null_mut()));
}

#[test]
fn a_queue_that_an_object_is_bound_to_does_not_close() {
    let node = Node::new();
    let other = Domain::new();
    let queue = node.domain.events();
    let endpoint = node.domain.endpoint();
    endpoint.bind(queue.cast(), 0).unwrap();
    assert_eq!(close(queue.cast()), Err(sys::FI_EBUSY));
    endpoint.close().unwrap();
    // The domain and the queue close in either order with nothing between them.
    bind(node.domain.domain.cast(), queue.cast(), 0).unwrap();
    assert_eq!(close(queue.cast()), Err(sys::FI_EBUSY));
    assert_eq!(bind(other.domain.cast(), queue.cast(), 0), Err(sys::FI_EINVAL), "another fabric");
    assert_eq!(bind(node.domain.domain.cast(), ptr::null_mut(), 0), Err(sys::FI_EINVAL));
    node.endpoint.close().unwrap();
    node.queue.close().unwrap();
    node.vector.close().unwrap();
    node.domain.close_domain().unwrap();
    close(queue.cast()).unwrap();
    assert_eq!(close(queue.cast()), Err(sys::FI_EBADF));
    node.domain.close_fabric().unwrap();
    other.close();
}
