//! Structures and constants of C, declared together with the list that is compared with the
//! installed header.

/// The layout of a structure.
#[derive(Debug)]
pub struct Structure {
    /// The structure's name in C, or a name of our own if it has none in C.
    pub name: &'static str,
    /// The structure's size in bytes.
    pub size: usize,
    /// Name, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
    /// The type of each field, as it is declared in Rust.
    pub types: &'static [&'static str],
}

/// Name and value of a constant.
pub type Constant = (&'static str, i128);

/// Declares structures of a header, and the list of them. The size of a structure stands before its
/// name, and the offset of a field before the field. Both are the numbers of x86-64, and asserted
/// there. On other machines a `pthread_mutex_t` may have another size.
#[macro_export]
macro_rules! structures {
    ($list:ident from $header:literal: $(
        $(#[$meta:meta])*
        $size:literal $kind:ident $name:ident {
            $($offset:literal $field:ident: $type:ty,)*
        }
    )*) => {
        $(
            #[doc = concat!("From `", $header, "`:")]
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            #[allow(missing_docs)]
            pub $kind $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// All bytes zero, as C's `= {0}`.
                #[inline]
                pub const fn zeroed() -> Self {
                    // SAFETY: the fields are integers, raw pointers, optional functions, and
                    // arrays of these. All of them may be zero.
                    unsafe { std::mem::zeroed() }
                }
            }

            #[cfg(target_arch = "x86_64")]
            const _: () = {
                assert!(size_of::<$name>() == $size);
                $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
            };
        )*

        pub(crate) const $list: &[$crate::Structure] = &[$(
            $crate::Structure {
                name: stringify!($name),
                size: size_of::<$name>(),
                fields: &[$((
                    stringify!($field),
                    std::mem::offset_of!($name, $field),
                    size_of::<$type>(),
                ),)*],
                types: &[$(stringify!($type),)*],
            },
        )*];
    };
}

/// Declares the constants of C's enumerations, each set with the type that holds it, and the list
/// of them. `$as` is the type as which the values are compared with the header's.
#[macro_export]
macro_rules! constants {
    ($list:ident as $as:ty, from $header:literal: $(
        $(#[$meta:meta])*
        $set:ident: $type:ty {
            $($name:ident = $value:expr,)*
        }
    )*) => {
        $(
            /// Constants of a header.
            #[doc = concat!("From `", $header, "`:")]
            $(#[$meta])*
            pub type $set = $type;
            $(
                #[doc = concat!("Of [`", stringify!($set), "`].")]
                /// See the header.
                pub const $name: $set = $value;
            )*
        )*

        #[allow(clippy::cast_sign_loss, clippy::cast_possible_wrap, clippy::cast_lossless)]
        pub(crate) const $list: &[$crate::Constant] =
            &[$($((stringify!($name), $name as $as as i128),)*)*];
    };
}
