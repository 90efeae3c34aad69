//! Settings that can grow.

/// Declares a public type of settings that may get more fields: other crates can't write it as a
/// literal, and set its fields by methods of the same names.
///
/// ```
/// tagmatch_device::settings! {
///     /// How to paint.
///     #[derive(Default)]
///     pub struct Paint {
///         /// Coats of paint.
///         pub coats: u32,
///     }
/// }
/// assert_eq!(Paint::default().coats(2).coats, 2);
/// ```
///
/// Where each field has its default value behind its type (`pub coats: u32 = 1,`), the type
/// implements `Default`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                pub $field:ident: $kind:ty = $default:expr,
            )*
        }
    ) => {
        $crate::settings! {
            $(#[$meta])*
            pub struct $name {
                $(
                    $(#[doc = $doc])*
                    pub $field: $kind,
                )*
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $default,)* }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(<$param:ident: $bound:path>)? {
            $(
                $(#[doc = $doc:literal])*
                $(#[cfg($($cfg:tt)*)])?
                pub $field:ident: $kind:ty,
            )*
        }
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name $(<$param: $bound>)? {
            $(
                $(#[doc = $doc])*
                $(#[cfg($($cfg)*)])?
                pub $field: $kind,
            )*
        }

        impl $(<$param: $bound>)? $name $(<$param>)? {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
                $(#[cfg($($cfg)*)])?
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
