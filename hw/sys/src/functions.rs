//! Declaring the functions of a C library together with the way to find them.

/// A function that a loaded library lacks.
#[derive(Debug)]
pub struct Missing {
    /// The function's name.
    pub symbol: &'static str,
    /// The version of the function that was looked for, if versions count.
    pub version: Option<&'static str>,
    /// The loader's reason.
    pub reason: String,
}

/// Declares a structure with one function pointer for each function of a library, and its
/// `resolve`, which finds the functions in a loaded library. The structure's own fields stand
/// before the functions; `resolve` gives them their default values.
///
/// A function is looked for by the version before its name (`#[Some("LIB_1.1")]`), or else by
/// `$version`. If a required function is missing, `resolve` fails. If an optional function is
/// missing, its field is `None`.
#[macro_export]
macro_rules! functions {
    (
        $(#[$meta:meta])*
        $table:ident { $($field:ident: $field_type:ty,)* }
        version $version:expr;
        required { $($(#[$other:expr])? $name:ident: fn($($type:ty),*) $(-> $result:ty)?,)* }
        optional { $(
            $(#[$late:expr])? $extra:ident: fn($($extra_type:ty),*) $(-> $extra_result:ty)?,
        )* }
    ) => {
        /// The functions of a library that was loaded at run time and is never unloaded.
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $table {
            $(pub $field: $field_type,)*
            $(pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            $(pub $extra: Option<unsafe extern "C" fn($($extra_type),*) $(-> $extra_result)?>,)*
        }

        impl $table {
            /// # Safety
            /// `library` is a handle of a loaded library. Its functions with the names declared
            /// here have the types declared here.
            unsafe fn resolve(library: *mut std::ffi::c_void) -> Result<Self, $crate::Missing> {
                // SAFETY: as above. The type that `transmute` gives is the field's.
                unsafe {
                    let find = |symbol, version| {
                        let found = $crate::load::symbol(library, symbol, version);
                        found.map_err(|reason| $crate::Missing { symbol, version, reason })
                    };
                    Ok($table {
                        $($field: <$field_type>::default(),)*
                        $($name: std::mem::transmute(find(
                            stringify!($name),
                            [$($other,)? $version][0],
                        )?),)*
                        $($extra: std::mem::transmute(find(
                            stringify!($extra),
                            [$($late,)? $version][0],
                        ).unwrap_or(std::ptr::null_mut())),)*
                    })
                }
            }
        }
    };
}
