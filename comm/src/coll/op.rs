//! What reductions combine values with.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

type Combine = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

/// An associative operation on values of some width: `right := left op right`, for as many values as the
/// slices hold.
#[derive(Clone)]
pub struct Op {
    combine: How,
    width: usize,
    is_commutative: bool,
}

#[derive(Clone)]
enum How {
    Known(fn(&[u8], &mut [u8])),
    Given(Arc<Combine>),
}

impl Op {
    /// The sum; integers wrap.
    pub fn sum<T: Element>() -> Self {
        Self::known(T::BYTES, |left, right| each::<T>(left, right, T::plus))
    }

    /// The product; integers wrap.
    pub fn product<T: Element>() -> Self {
        Self::known(T::BYTES, |left, right| each::<T>(left, right, T::times))
    }

    /// The smaller value.
    pub fn min<T: Element>() -> Self {
        Self::known(T::BYTES, |left, right| {
            each::<T>(left, right, |l, r| if r < l { r } else { l })
        })
    }

    /// The larger value.
    pub fn max<T: Element>() -> Self {
        Self::known(T::BYTES, |left, right| {
            each::<T>(left, right, |l, r| if r > l { r } else { l })
        })
    }

    /// Bitwise AND.
    pub fn band() -> Self {
        Self::known(1, |left, right| left.iter().zip(right).for_each(|(l, r)| *r &= l))
    }

    /// Bitwise OR.
    pub fn bor() -> Self {
        Self::known(1, |left, right| left.iter().zip(right).for_each(|(l, r)| *r |= l))
    }

    /// Bitwise exclusive OR.
    pub fn bxor() -> Self {
        Self::known(1, |left, right| left.iter().zip(right).for_each(|(l, r)| *r ^= l))
    }

    /// An operation of the caller's, on values of `width` bytes. It runs while the runtime is locked, on any
    /// thread that makes progress, and must not call a communicator. If it isn't commutative, values are
    /// combined in the order of ranks.
    ///
    /// # Errors
    /// The width is 0.
    pub fn new(
        width: usize,
        is_commutative: bool,
        combine: impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        if width == 0 {
            return Err(Error::Length { length: 0, what: "a value has one byte at least" });
        }
        Ok(Op { combine: How::Given(Arc::new(combine)), width, is_commutative })
    }

    /// Whether the order of the values doesn't matter.
    pub fn is_commutative(&self) -> bool {
        self.is_commutative
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    fn known(width: usize, combine: fn(&[u8], &mut [u8])) -> Self {
        Op { combine: How::Known(combine), width, is_commutative: true }
    }

    pub(crate) fn check(&self, length: usize) -> Result<(), Error> {
        if length.is_multiple_of(self.width) {
            return Ok(());
        }
        Err(Error::Length { length, what: "a whole number of the operation's values is due" })
    }

    pub(crate) fn apply(&self, left: &[u8], right: &mut [u8]) {
        match &self.combine {
            How::Known(combine) => combine(left, right),
            How::Given(combine) => combine(left, right),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Op { width, is_commutative, .. } = self;
        write!(f, "Op(width {width}, commutative {is_commutative})")
    }
}

/// A number that reductions know, in this machine's order of bytes.
pub trait Element: Copy + PartialOrd + sealed::Element {
    /// Its bytes.
    const BYTES: usize;
}

mod sealed {
    /// Keeps [`Element`](super::Element) to numbers.
    pub trait Element: Sized {
        #[doc(hidden)]
        fn plus(self, other: Self) -> Self;
        #[doc(hidden)]
        fn times(self, other: Self) -> Self;
        #[doc(hidden)]
        fn read(bytes: &[u8]) -> Self;
        #[doc(hidden)]
        fn write(self, bytes: &mut [u8]);
    }
}

macro_rules! element {
    ($plus:ident, $times:ident: $($type:ty)*) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<$type>();
        }

        impl sealed::Element for $type {
            fn plus(self, other: Self) -> Self {
                $plus!(self, other)
            }

            fn times(self, other: Self) -> Self {
                $times!(self, other)
            }

            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map_or_else(|_| Self::default(), Self::from_ne_bytes)
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )*};
}

macro_rules! wrapping_plus {
    ($a:expr, $b:expr) => {
        $a.wrapping_add($b)
    };
}
macro_rules! wrapping_times {
    ($a:expr, $b:expr) => {
        $a.wrapping_mul($b)
    };
}
macro_rules! plain_plus {
    ($a:expr, $b:expr) => {
        $a + $b
    };
}
macro_rules! plain_times {
    ($a:expr, $b:expr) => {
        $a * $b
    };
}

element!(wrapping_plus, wrapping_times: u8 u16 u32 u64 i8 i16 i32 i64);
element!(plain_plus, plain_times: f32 f64);

fn each<T: Element>(left: &[u8], right: &mut [u8], combine: impl Fn(T, T) -> T) {
    for (left, right) in left.chunks_exact(T::BYTES).zip(right.chunks_exact_mut(T::BYTES)) {
        combine(T::read(left), T::read(right)).write(right);
    }
}

/// The bytes of numbers.
pub fn to_bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    bytes.chunks_exact_mut(T::BYTES).zip(values).for_each(|(bytes, value)| value.write(bytes));
    bytes
}

/// Numbers from their bytes; what is left over at the end is ignored.
pub fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::BYTES).map(T::read).collect()
}
