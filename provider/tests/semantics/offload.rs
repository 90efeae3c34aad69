//! Receives that a NIC matches: what MPI libraries post in the modes in which a tag names its
//! sender. The NIC is the model of one.

use std::ffi::OsStr;

use crate::client::{Hints, Memory, World, alone_with, call, payload, sys};

/// More than the bound below which software is faster.
const LENGTH: usize = 4096;
/// Receives before a message to oneself.
const BEFORE: u64 = 8;
/// Receives after it that name their source.
const AFTER: u64 = 4;

/// Where an MPI library puts an envelope into a tag.
struct Library {
    /// The library's setting that puts the source into the tag.
    variable: &'static str,
    value: &'static str,
    /// The capability that it demands beside those for messages.
    demands: u64,
    source_shift: u32,
    source_bits: u32,
    /// The bits with which the library marks its own protocols. All receives ignore them.
    protocol: u64,
    /// One of these bits: a send that is acknowledged.
    acknowledged: u64,
}

/// `ofi_tag_1`: `ompi/mca/mtl/ofi/mtl_ofi_types.h` and `mtl_ofi.h` of Open MPI 4.1.4.
const OPEN_MPI: Library = Library {
    variable: "OMPI_MCA_mtl_ofi_tag_mode",
    value: "ofi_tag_1",
    demands: sys::FI_DIRECTED_RECV,
    source_shift: 34,
    source_bits: 18,
    protocol: 3 << 32,
    acknowledged: 1 << 32,
};

/// Without immediate data: `src/mpid/ch4/netmod/ofi/ofi_types.h` of MPICH 5.0.
const MPICH: Library = Library {
    variable: "MPIR_CVAR_CH4_OFI_ENABLE_DATA",
    value: "0",
    demands: 0,
    source_shift: 19,
    source_bits: 23,
    protocol: 15 << 58,
    acknowledged: 1 << 58,
};

impl Library {
    fn tag(&self, source: u64, tag: u64) -> u64 {
        let context = 5 << (self.source_shift + self.source_bits);
        context | source << self.source_shift | tag
    }

    fn any_source(&self) -> u64 {
        ((1 << self.source_bits) - 1) << self.source_shift
    }

    /// Two ranks exchange messages as the library does. Rank 1 receives.
    fn exchange(&self) {
        let caps = sys::FI_TAGGED | sys::FI_MSG | sys::FI_MULTI_RECV | self.demands;
        let hints = Hints { caps, ..Hints::default() };
        let world = World::of(2, &hints, sys::FI_TRANSMIT | sys::FI_RECV);
        let receive = |source, tag, ignore, context: u64| {
            let room = Memory::new(LENGTH);
            let ignore = ignore | self.protocol;
            world.endpoint(1).trecv(room, self.tag(source, tag), ignore, context as usize).unwrap();
            // The NIC has the receive when its message comes.
            world.settle();
            room
        };
        let send = |source: u64, tag, marks| {
            let bytes = payload(tag, LENGTH);
            let tag = self.tag(source, tag) | marks;
            let endpoint = world.endpoint(source as usize);
            endpoint.tsend(Memory::of(&bytes), world.address(1), tag, 100).unwrap();
            bytes
        };
        // Nobody has sent to itself, so a receive of any source may go to the NIC, too.
        for tag in 1..=BEFORE {
            let is_any = tag == 2;
            let ignore = if is_any { self.any_source() } else { 0 };
            let room = receive(0, tag, ignore, tag);
            let marks = if tag == 3 { self.acknowledged } else { 0 };
            let bytes = send(0, tag, marks);
            world.success(0, 100);
            assert_eq!(world.success(1, tag as usize).tag, self.tag(0, tag) | marks);
            assert_eq!(room.bytes(), bytes);
        }
        // A message to oneself doesn't pass the NIC.
        let own = receive(1, 50, 0, 50);
        let bytes = send(1, 50, 0);
        let mut contexts = [world.entry(1).context, world.entry(1).context];
        contexts.sort_unstable();
        assert_eq!((contexts, own.bytes()), ([50, 100], bytes));
        // From now on a NIC may have receives that name a source that always sends through it, and
        // no others.
        for number in 0..=AFTER {
            let tag = 60 + number;
            let is_any = number == AFTER;
            let room = receive(0, tag, if is_any { self.any_source() } else { 0 }, tag);
            let bytes = send(0, tag, 0);
            world.success(0, 100);
            world.success(1, tag as usize);
            assert_eq!(room.bytes(), bytes);
        }
        drop(world);
        // libfabric calls this when the process ends.
        call!(tagmatch_fi::fi_prov_ini(), cleanup());
    }

    /// Runs the exchange in a process whose NIC is the model, and reads its report.
    fn is_offloaded(&self, test: &str) {
        let name = format!("tagmatch-{}-{}.report", self.value, std::process::id());
        let path = std::env::temp_dir().join(name);
        let variables = [
            ("TAGMATCH_FI_DEVICE", OsStr::new("shm")),
            ("TAGMATCH_FI_HW_TAGS", OsStr::new("model")),
            (self.variable, OsStr::new(self.value)),
            ("TAGMATCH_FI_REPORT", path.as_os_str()),
        ];
        let mut is_child = false;
        alone_with(test, &variables, || {
            is_child = true;
            self.exchange();
        });
        if is_child {
            return;
        }
        let report = std::fs::read_to_string(&path).expect("a report");
        let _ = std::fs::remove_file(&path);
        let row = |first: &str| {
            let line = report.lines().find(|line| line.split_whitespace().next() == Some(first));
            line.unwrap_or_else(|| panic!("no line {first}: {report}")).split_whitespace()
        };
        let number = |column| {
            let (_, value) = row("rank").zip(row("sum")).find(|(name, _)| *name == column).unwrap();
            value.parse::<u64>().expect("a number")
        };
        // The receive of the message to oneself and the last one, of any source, are not for the
        // NIC.
        let nic = number("nic");
        let phase = number("phase");
        assert_eq!(number("received"), BEFORE + AFTER + 2, "{report}");
        assert_eq!(number("source"), 2, "{report}");
        assert_eq!(nic + phase, BEFORE + AFTER, "{report}");
        // A list that is used for the first time, or again, is told first what came meanwhile. A
        // receive may miss it then.
        assert!(phase <= 2, "{report}");
    }
}

#[test]
fn a_nic_matches_what_open_mpi_posts_if_tags_name_their_sender() {
    OPEN_MPI.is_offloaded("offload::a_nic_matches_what_open_mpi_posts_if_tags_name_their_sender");
}

#[test]
fn a_nic_matches_what_mpich_posts_without_immediate_data() {
    MPICH.is_offloaded("offload::a_nic_matches_what_mpich_posts_without_immediate_data");
}
