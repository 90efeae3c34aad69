//! Structures and constants of C, declared together with what is compared with the header.

/// Where a structure's fields are.
#[derive(Debug)]
pub struct Structure {
    /// Its name in C.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// Name and value of a constant.
pub type Constant = (&'static str, i64);

/// Declares structures, and the list of them. Each field stands behind its offset, as does the structure's
/// name behind its size; both are those of 64-bit machines, and asserted there.
macro_rules! structures {
    ($list:ident: $(
        $(#[$meta:meta])*
        $size:literal $name:ident {
            $($offset:literal $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            /// From `ucp/api/ucp.h`:
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(missing_docs)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// All bytes zero, as C's `= {0}`.
                #[inline]
                pub const fn zeroed() -> Self {
                    // SAFETY: integers, raw pointers, optional functions, and arrays of them: each is
                    // valid when all its bytes are zero.
                    unsafe { std::mem::zeroed() }
                }
            }

            #[cfg(target_pointer_width = "64")]
            const _: () = {
                assert!(size_of::<$name>() == $size);
                $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
            };
        )*

        pub(crate) const $list: &[crate::layout::Structure] = &[$(
            crate::layout::Structure {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$((
                    stringify!($field),
                    std::mem::offset_of!($name, $field),
                    size_of::<$type>(),
                ),)*],
            },
        )*];
    };
}

/// Declares the constants of C's enumerations, each set with the type that holds it, and the list of them.
macro_rules! constants {
    ($list:ident: $(
        $(#[$meta:meta])*
        $set:ident: $type:ty {
            $($name:ident = $value:expr,)*
        }
    )*) => {
        $(
            /// From `ucp/api/ucp.h`:
            $(#[$meta])*
            pub type $set = $type;
            $(
                #[doc = concat!("Of [`", stringify!($set), "`].")]
                /// See the header.
                pub const $name: $set = $value;
            )*
        )*

        // None is above 2^63.
        #[allow(clippy::cast_possible_wrap, clippy::cast_lossless)]
        pub(crate) const $list: &[crate::layout::Constant] =
            &[$($((stringify!($name), $name as i64),)*)*];
    };
}
