//! Structures and constants of C, declared together with what is compared with the header.

/// Where a structure's fields are.
#[derive(Debug)]
pub struct Structure {
    /// Its name in C, or ours where C has none.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

/// Name and value of a constant.
pub type Constant = (&'static str, u64);

/// Declares structures, and the list of them. Each field stands behind its offset, as does the structure's name behind its
/// size; both are those of x86-64, and asserted there. (Elsewhere a `pthread_mutex_t` may differ in size.)
macro_rules! structures {
    ($list:ident: $(
        $(#[$meta:meta])*
        $size:literal $kind:ident $name:ident {
            $($offset:literal $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            /// From `infiniband/verbs.h`:
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub $kind $name {
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

            #[cfg(target_arch = "x86_64")]
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
            /// From `infiniband/verbs.h`:
            $(#[$meta])*
            pub type $set = $type;
            $(
                #[doc = concat!("Of [`", stringify!($set), "`].")]
                /// See its manual page.
                pub const $name: $set = $value;
            )*
        )*

        // Negative values are compared as two's complement.
        #[allow(clippy::cast_sign_loss)]
        pub(crate) const $list: &[crate::layout::Constant] =
            &[$($((stringify!($name), $name as u64),)*)*];
    };
}
