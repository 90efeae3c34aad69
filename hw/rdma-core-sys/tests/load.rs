//! Loading: errors say what is wrong, and the installed library has all functions.

use std::ffi::CString;

use tagmatch_rdma_core_sys::{
    LoadError, Verbs, ibv_context, ibv_srq, ibv_srq_init_attr_ex, load, verbs_context,
};
use tagmatch_testkit::device::{again, role};

fn load(path: &str) -> Result<Verbs, LoadError> {
    // SAFETY: these tests load only libraries of the system.
    unsafe { Verbs::load(&CString::new(path).unwrap()) }
}

#[test]
fn a_missing_library_is_named() {
    let error = load("/nowhere/libibverbs.so.1").unwrap_err();
    assert!(matches!(error, LoadError::NotLoaded { .. }), "{error}");
    assert!(error.to_string().contains("/nowhere/libibverbs.so.1"), "{error}");
}

#[test]
fn another_library_is_named_with_what_it_lacks() {
    let error = load("libc.so.6").unwrap_err();
    assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("libc.so.6") && text.contains("ibv_get_device_list"), "{text}");
}

/// The installed libibverbs. If there is none, prints that the test is skipped.
fn installed() -> Option<Verbs> {
    match load("libibverbs.so.1") {
        Ok(verbs) => Some(verbs),
        Err(error @ LoadError::NotLoaded { .. }) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_installed_library_has_all_functions() {
    let Some(verbs) = installed() else { return };
    assert!(verbs.path().contains("libibverbs.so"), "{}", verbs.path());
    // SAFETY: the list is freed. It is null on a kernel without RDMA, which is no error here.
    unsafe {
        let list = (verbs.ibv_get_device_list)(std::ptr::null_mut());
        if !list.is_null() {
            (verbs.ibv_free_device_list)(list);
        }
        let text = std::ffi::CStr::from_ptr((verbs.ibv_wc_status_str)(22));
        assert_eq!(text.to_str(), Ok("TM error"));
    }
}

#[test]
fn the_environment_names_the_library() {
    if role().is_some() {
        println!("child: {:?}", Verbs::get().map_err(ToString::to_string));
        return;
    }
    let test = "the_environment_names_the_library";
    let text = again(test, &[(load::LIBRARY_VARIABLE, "/nowhere/another.so")]);
    assert!(text.contains("child: Err("), "{text}");
    assert!(text.contains("/nowhere/another.so"), "{text}");
}

/// An extended context of `sz` bytes. Its `create_srq_ex` returns a pointer to no queue.
fn context(sz: usize) -> Box<verbs_context> {
    unsafe extern "C" fn create(_: *mut ibv_context, _: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
        std::ptr::dangling_mut()
    }
    // SAFETY: pointers, optional functions and integers may be zero.
    let mut whole: Box<verbs_context> = Box::new(unsafe { std::mem::zeroed() });
    whole.sz = sz;
    whole.create_srq_ex = Some(create);
    whole.context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    whole
}

#[test]
fn a_tag_matching_queue_comes_from_the_context_that_has_it() {
    use tagmatch_rdma_core_sys::*;
    let Some(verbs) = installed() else { return };
    let create = |whole: &mut Box<verbs_context>| {
        let mut attr = ibv_srq_init_attr_ex::zeroed();
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
            | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_CQ
            | IBV_SRQ_INIT_ATTR_TM;
        attr.srq_type = IBV_SRQT_TM;
        let whole: *mut verbs_context = &raw mut **whole;
        // SAFETY: the context is valid for `sz` bytes.
        !unsafe { ibv_create_srq_ex(&verbs, &raw mut (*whole).context, &raw mut attr) }.is_null()
    };
    let size = size_of::<verbs_context>();
    assert!(create(&mut context(size)));
    // `create_srq_ex` lies 40 bytes before the plain context, which has 328 bytes.
    let reach = size_of::<ibv_context>() + 40;
    assert!(create(&mut context(reach)));
    assert!(!create(&mut context(reach - 8)));
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    let mut plain = context(size);
    plain.context.abi_compat = std::ptr::null_mut();
    assert!(!create(&mut plain));
    let mut without = context(size);
    without.create_srq_ex = None;
    assert!(!create(&mut without));
}
