//! Versions of the interface, as one number: `fi_version(3)`.

/// The number of a version, as the macro `FI_VERSION` of `rdma/fabric.h` makes it.
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// The first part of a version.
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// The second part of a version.
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}
