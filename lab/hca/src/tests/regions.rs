//! Memory that is registered anew under its key: `ibv_rereg_mr(3)`.

use zerocopy::IntoBytes;

use super::programs::{Program, segment};
use super::{REQUEST, completions, connected, remote};
use crate::abi::{ReregisterMemory, write_command};
use crate::boundary::Errno;
use crate::wqe::opcode;

const TRANSLATION: u32 = 1;
const DOMAIN: u32 = 2;
const ACCESS: u32 = 4;

fn reregister(p: &mut Program, mut request: ReregisterMemory) -> Result<u32, Errno> {
    request.hca_va = request.start;
    let answer = p.write_command(write_command::REREG_MR, request.as_bytes(), 8)?;
    assert_eq!(answer[..4], answer[4..], "both keys are one");
    Ok(u32::from_ne_bytes(answer[..4].try_into().unwrap()))
}

#[test]
fn a_region_moves_and_changes_its_access_under_its_key() {
    let (mut p, [mut a, b]) = connected(7);
    let other = p[1].allocate(0x2000);
    p[1].put(other, b"moved");
    let change = |flags| ReregisterMemory { mr_handle: b.handle, flags, ..Default::default() };
    let moved = ReregisterMemory { start: other, length: 0x2000, ..change(TRANSLATION) };
    assert_eq!(reregister(&mut p[1], moved), Ok(b.key));
    let mut read = |p: &mut [Program], at| {
        let rest = [remote(at, b.key), segment(a.at, 5, a.key)].concat();
        p[0].post(&mut a.qp, opcode::READ, 0, &rest);
        (completions(p, 0, &mut a.cq, 1)[0].opcode(), p[0].get(a.at, 5))
    };
    assert_eq!(read(&mut p, other), (REQUEST, b"moved".to_vec()));
    // Memory that peers may not read any more, and the memory that the key had before.
    let local = ReregisterMemory { access_flags: 1, ..change(ACCESS) };
    assert_eq!(reregister(&mut p[1], local), Ok(b.key));
    assert_ne!(read(&mut p, other).0, REQUEST);
}

#[test]
fn a_region_stays_as_it_was_if_a_change_is_refused() {
    let [mut p, _] = super::two();
    let at = p.allocate(0x2000);
    let (handle, key) = p.register(at, 0x2000, 1).unwrap();
    let before = p.function.adapter.regions.get(key).unwrap();
    let change = |flags| ReregisterMemory { mr_handle: handle, flags, ..Default::default() };
    let gone = ReregisterMemory { start: 0x10, length: 8, ..change(TRANSLATION) };
    for (request, why) in [
        (change(0), libc::EINVAL),
        (change(8), libc::EOPNOTSUPP),
        (ReregisterMemory { mr_handle: 99, ..change(ACCESS) }, libc::EINVAL),
        (ReregisterMemory { access_flags: 2, ..change(ACCESS) }, libc::EINVAL),
        (ReregisterMemory { access_flags: 64, ..change(ACCESS) }, libc::EOPNOTSUPP),
        (ReregisterMemory { pd_handle: handle, ..change(DOMAIN) }, libc::EINVAL),
        (gone, libc::EFAULT),
        (ReregisterMemory { start: at, ..change(TRANSLATION) }, libc::EINVAL),
    ] {
        assert_eq!(reregister(&mut p, request), Err(why), "{request:?}");
        let now = p.function.adapter.regions.get(key).unwrap();
        assert_eq!(format!("{now:?}"), format!("{before:?}"), "{request:?}");
    }
    let domain = p.allocate_pd().unwrap();
    let moved = ReregisterMemory { pd_handle: domain, ..change(DOMAIN) };
    assert_eq!(reregister(&mut p, moved), Ok(key));
    assert_eq!(p.function.adapter.regions.get(key).unwrap().pd, domain);
}
