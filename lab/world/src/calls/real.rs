//! The real functions of the C library, below those of the world.

use std::mem::transmute_copy;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Calls the real function.
macro_rules! real {
    ($name:ident as fn($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {{
        static REAL: $crate::calls::real::Real =
            $crate::calls::real::Real::new(concat!(stringify!($name), "\0"));
        // SAFETY: the type is that of the declaration in the libc crate, and the caller of this
        // function keeps the promises of the real one.
        unsafe { REAL.function::<unsafe extern "C" fn($($type),*) -> $result>()($($argument),*) }
    }};
}

/// A function of the C library that this program has another one in front of.
pub(crate) struct Real {
    /// It ends with a zero.
    name: &'static str,
    found: AtomicPtr<libc::c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static str) -> Self {
        Real { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function.
    ///
    /// # Safety
    /// `F` is the type of a pointer to it.
    pub(crate) unsafe fn function<F: Copy>(&self) -> F {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: a name that ends with a zero.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
            if found.is_null() {
                std::process::abort();
            }
            self.found.store(found, Ordering::Relaxed);
        }
        const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
        // SAFETY: a pointer to a function, of the type that the caller has promised.
        unsafe { transmute_copy(&found) }
    }
}
