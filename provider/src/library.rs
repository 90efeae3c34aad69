//! What the provider knows of MPI libraries beyond libfabric's interface. None of it decides which
//! receive takes a message.
//!
//! Both Open MPI and MPICH can put the sender into the tag, so that a NIC, which compares tags
//! only, can match receives that name their source. Each has a setting of its own for that, which
//! the provider reads as well:
//!
//! - Open MPI demands `FI_DIRECTED_RECV` in any mode. Its receives then name no source beside the
//!   tag.
//! - MPICH puts the sender into the tag if it isn't given `FI_DIRECTED_RECV`. It takes all that is
//!   offered, so [`TagModes::hides_directed`] withholds it.

use std::ffi::{CStr, CString, OsString, c_int, c_void};
use std::sync::OnceLock;

use tagmatch::TagLayout;

/// Open MPI's mode of tags: `mpirun --mca mtl_ofi_tag_mode` sets this variable for all ranks.
const OPEN_MPI: &str = "OMPI_MCA_mtl_ofi_tag_mode";
/// MPICH's setting for the sender in immediate data (0: in the tag).
const MPICH: &str = "MPIR_CVAR_CH4_OFI_ENABLE_DATA";

/// The widths of context, source and tag, from `ompi/mca/mtl/ofi/mtl_ofi_types.h`. The tag's width
/// includes the two bits of Open MPI's protocol.
const OPEN_MPI_MODES: [(&str, (u32, u32, u32)); 2] =
    [("ofi_tag_1", (11, 18, 34)), ("ofi_tag_2", (23, 18, 22))];
/// MPICH's match bits without immediate data, below those of its protocol.
const MPICH_WIDTHS: (u32, u32, u32) = (16, 23, 19);

/// Where MPI libraries were told to put the sender into their tags. That is a hint: a worker uses
/// it to guess which receives a NIC may have while messages come by several ways.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TagModes {
    open_mpi: Option<TagLayout>,
    mpich: Option<TagLayout>,
}

impl TagModes {
    /// The modes that the environment tells. `get` gives the value of a variable. Values that are
    /// not known are left to the library.
    pub(crate) fn read(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let layout =
            |(context, source, tag): (u32, u32, u32)| TagLayout::new(context, source, tag).ok();
        let open_mpi = get(OPEN_MPI).and_then(|value| {
            let (_, widths) = OPEN_MPI_MODES.iter().find(|(mode, _)| value == *mode)?;
            layout(*widths)
        });
        let mpich = get(MPICH).filter(|value| value == "0").and_then(|_| layout(MPICH_WIDTHS));
        TagModes { open_mpi, mpich }
    }

    /// Whether `FI_DIRECTED_RECV` is offered only to programs that ask for it. It must be asked for
    /// (fi_getinfo(3)), and the answer tells the program whether it has it.
    pub(crate) fn hides_directed(&self) -> bool {
        self.mpich.is_some()
    }

    /// Where the tags of an endpoint name their sender. `is_directed`: it was opened with
    /// `FI_DIRECTED_RECV`, as Open MPI opens it and MPICH in this mode does not.
    pub(crate) fn layout(&self, is_directed: bool) -> Option<TagLayout> {
        if is_directed { self.open_mpi } else { self.mpich }
    }
}

/// Whether Open MPI is loaded into this process.
pub(crate) fn is_open_mpi() -> bool {
    static IS_OPEN_MPI: OnceLock<bool> = OnceLock::new();
    *IS_OPEN_MPI.get_or_init(|| loaded(b"libopen-pal.").is_some())
}

/// The path of the first loaded library whose file name begins with `prefix`.
pub(crate) fn loaded(prefix: &[u8]) -> Option<CString> {
    let mut search = LibrarySearch { prefix, found: None };
    // SAFETY: `look` takes the pointer that is passed here, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

struct LibrarySearch<'a> {
    prefix: &'a [u8],
    found: Option<CString>,
}

/// Notes the library's path if it is the one that is searched for. Gives 1 to end the search. It
/// must not call dlopen(3): the loader holds one of its locks meanwhile, and another thread that
/// loads a library takes both locks in the other order.
unsafe extern "C" fn look(
    library: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader gives a library, whose name is a string; `loaded` passes the search.
    let (name, search) = unsafe {
        if (*library).dlpi_name.is_null() {
            return 0;
        }
        (CStr::from_ptr((*library).dlpi_name), &mut *search.cast::<LibrarySearch<'_>>())
    };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !file.starts_with(search.prefix) {
        return 0;
    }
    search.found = Some(name.to_owned());
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(variables: &[(&str, &str)]) -> TagModes {
        TagModes::read(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.into())
        })
    }

    fn source_bits(modes: &TagModes, is_directed: bool) -> u64 {
        modes.layout(is_directed).map_or(0, |layout| layout.source_mask().0)
    }

    #[test]
    fn each_library_says_where_its_tags_have_the_sender() {
        let none = modes(&[(OPEN_MPI, "auto"), (MPICH, "1")]);
        assert_eq!([true, false].map(|directed| source_bits(&none, directed)), [0, 0]);
        assert!(!none.hides_directed());
        for (mode, bits) in [("ofi_tag_1", 0x3_ffff << 34), ("ofi_tag_2", 0x3_ffff << 22)] {
            let open_mpi = modes(&[(OPEN_MPI, mode)]);
            assert_eq!([true, false].map(|d| source_bits(&open_mpi, d)), [bits, 0]);
            assert!(!open_mpi.hides_directed());
        }
        // Variables of the other library don't count.
        let both = modes(&[(OPEN_MPI, "ofi_tag_1"), (MPICH, "0")]);
        assert_eq!(source_bits(&both, false), 0x7f_ffff << 19);
        assert_eq!(source_bits(&both, true), 0x3_ffff << 34);
        assert!(both.hides_directed());
    }

    #[test]
    fn a_loaded_library_is_found_by_the_beginning_of_its_name() {
        assert!(loaded(b"libc.so.").is_some());
        assert!(loaded(b"ibc.so.").is_none());
        assert!(!is_open_mpi());
    }
}
