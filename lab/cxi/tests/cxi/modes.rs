//! Where receives are matched: the environment, and fi_control(3) on a domain.

use tagmatch_ofi_sys as sys;

use crate::client::{Hints, Node};
use crate::process::alone;

#[test]
fn a_mode_can_be_set_before_the_first_endpoint_alone() {
    alone("modes::a_mode_can_be_set_before_the_first_endpoint_alone", &[], |_| {
        assert_eq!(Node::new().mode(), "hardware");
        for (mode, name) in [(c"hybrid", "hybrid"), (c"software", "software")] {
            let node = Node::of(&Hints { mode: Some(mode), ..Hints::default() });
            assert_eq!(node.mode(), name);
            assert_eq!(node.set_mode(c"hardware"), Err(sys::FI_EBUSY));
            assert_eq!((node.set_mode(c"Hybrid"), node.mode()), (Err(sys::FI_EINVAL), name.into()));
            node.close();
        }
    });
}

#[test]
fn the_environment_has_the_first_mode() {
    let test = "modes::the_environment_has_the_first_mode";
    alone(test, &[("FI_CXI_RX_MATCH_MODE", "hybrid")], |_| {
        assert_eq!(Node::new().mode(), "hybrid")
    });
}

/// As before libfabric 2.4.
#[test]
fn an_old_provider_knows_no_such_command() {
    let test = "modes::an_old_provider_knows_no_such_command";
    alone(test, &[("TAGMATCH_CXI_CONTROL", "off")], |_| {
        assert_eq!(Node::new().set_mode(c"hybrid"), Err(sys::FI_EINVAL));
    });
}
