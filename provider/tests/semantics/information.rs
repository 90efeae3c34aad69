//! `fi_getinfo`: fi_getinfo(3).

use std::ffi::CStr;

use crate::client::{Hints, Node, alone_with, info_for, sys};

#[test]
fn libfabric_is_told_the_name_and_the_version_of_the_provider() {
    // SAFETY: the description and its name are never freed.
    let (name, version) = unsafe {
        let description = &*tagmatch_fi::fi_prov_ini();
        (CStr::from_ptr(description.name), description.version)
    };
    assert_eq!((name, version), (c"tagmatch", sys::FI_VERSION(0, 1)));
}

/// fabtests without `-E` name the server's host, and would send to no address.
#[test]
fn the_name_of_a_host_is_refused_in_words_and_an_endpoints_name_is_taken() {
    let test = "information::the_name_of_a_host_is_refused_in_words_and_an_endpoints_name_is_taken";
    let words = alone_with(test, &[("FI_PROVIDER", "Tagmatch".as_ref())], || {
        let hints = Hints::default();
        let node = Node::new();
        let refused = info_for(&hints, Some(c"host.example"), 0);
        assert_eq!(refused, Err(sys::FI_ENODATA));
        // The place that a program wants to be found at: an endpoint has one of its own.
        assert!(info_for(&hints, Some(c"host.example"), sys::FI_SOURCE).is_ok());
        let (text, _) = node.vector.text(&node.name, 1000);
        let text = CStr::from_bytes_until_nul(&text).unwrap();
        let found = info_for(&hints, Some(text), 0).unwrap();
        // SAFETY: the provider gave the answer, whose address is as long as names are.
        let given = unsafe { (*found).dest_addr.cast::<crate::client::Name>().read_unaligned() };
        assert_eq!(given, node.name);
        node.close();
    });
    let Some(words) = words else { return };
    assert!(words.contains("(host.example)") && words.contains("fabtests do with -E"), "{words}");
}
