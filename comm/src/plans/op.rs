//! The operations that combine values in reductions, and the number types that they know.

use std::fmt;
use std::ops::{Add, Mul};
use std::sync::Arc;

use tagmatch::Buffer;

use crate::error::Error;

/// An associative operation on values of a fixed width. Applied to two slices, it sets
/// `right := left op right` for each value that they hold.
#[derive(Clone)]
pub struct Op {
    combine: Combine,
    width: usize,
    is_commutative: bool,
}

type Closure = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

#[derive(Clone)]
enum Combine {
    Function(fn(&[u8], &mut [u8])),
    Closure(Arc<Closure>),
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

    /// An operation that the caller defines, on values of `width` bytes. Any thread that makes
    /// progress may run `combine`, and runs it while the runtime is locked, so `combine` must not
    /// call a communicator. If the operation is not commutative, values are combined in the order
    /// of ranks.
    ///
    /// # Errors
    /// The width is 0.
    pub fn new(
        width: usize,
        is_commutative: bool,
        combine: impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        if width == 0 {
            return Err(Error::Length {
                length: 0,
                what: "the width of a value is at least 1 byte",
            });
        }
        Ok(Op { combine: Combine::Closure(Arc::new(combine)), width, is_commutative })
    }

    /// Whether the order of the values doesn't matter.
    pub fn is_commutative(&self) -> bool {
        self.is_commutative
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    fn known(width: usize, combine: fn(&[u8], &mut [u8])) -> Self {
        Op { combine: Combine::Function(combine), width, is_commutative: true }
    }

    #[inline]
    pub(crate) fn check(&self, length: usize) -> Result<(), Error> {
        if length.is_multiple_of(self.width) {
            return Ok(());
        }
        Err(Error::Length { length, what: "expected a whole number of the operation's values" })
    }

    pub(crate) fn apply(&self, left: &[u8], right: &mut [u8]) {
        match &self.combine {
            Combine::Function(combine) => combine(left, right),
            Combine::Closure(combine) => combine(left, right),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Op { width, is_commutative, .. } = self;
        write!(f, "Op(width {width}, commutative {is_commutative})")
    }
}

/// A type of numbers that reductions can combine. Its bytes are in this machine's byte order.
pub trait Element: tagmatch::Element + PartialOrd + sealed::Element {
    /// The size of a number in bytes.
    const BYTES: usize;
}

mod sealed {
    /// Makes sure that only this crate implements [`Element`](super::Element).
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
                <$type>::$plus(self, other)
            }

            fn times(self, other: Self) -> Self {
                <$type>::$times(self, other)
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

element!(wrapping_add, wrapping_mul: u8 u16 u32 u64 i8 i16 i32 i64);
element!(add, mul: f32 f64);

fn each<T: Element>(left: &[u8], right: &mut [u8], combine: impl Fn(T, T) -> T) {
    for (left, right) in left.chunks_exact(T::BYTES).zip(right.chunks_exact_mut(T::BYTES)) {
        combine(T::read(left), T::read(right)).write(right);
    }
}

/// The numbers of an operation's result. They are not copied if the memory is that of the numbers
/// that this member has passed ([`Buffer::from_elements`]), or was made for as many more or fewer.
/// Bytes at the end that are too few for a number are ignored.
///
/// ```
/// # use tagmatch::{Buffer, Config as WorkerConfig, Worker};
/// # use tagmatch_comm::coll::{Op, into_elements};
/// # use tagmatch_comm::net::worker::WorkerNet;
/// # use tagmatch_comm::{Config, Runtime};
/// # let worker = Worker::new(WorkerConfig::default())?;
/// # let addresses = vec![worker.address()];
/// # let runtime = Runtime::new(WorkerNet::new(worker, addresses, 0)?, Config::default())?;
/// # let world = runtime.world();
/// let samples = Buffer::from_elements(vec![0.5, 2.5]);
/// let sums = world.allreduce(samples, &Op::sum::<f64>()).wait()?;
/// assert_eq!(into_elements::<f64>(sums), [0.5, 2.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn into_elements<T: Element>(result: Buffer) -> Vec<T> {
    result.into_elements().unwrap_or_else(|bytes| from_bytes(&bytes))
}

/// The bytes of these numbers.
pub fn to_bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    bytes.chunks_exact_mut(T::BYTES).zip(values).for_each(|(bytes, value)| value.write(bytes));
    bytes
}

/// The numbers with these bytes. Bytes at the end that are too few for a number are ignored.
pub fn from_bytes<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::BYTES).map(T::read).collect()
}

#[cfg(test)]
mod tests {
    use super::{Element, Op, from_bytes, to_bytes};

    fn applied<T: Element>(op: &Op, left: &[T], right: &[T]) -> Vec<T> {
        let mut right = to_bytes(right);
        op.apply(&to_bytes(left), &mut right);
        from_bytes(&right)
    }

    #[test]
    fn each_known_operation_combines_value_by_value() {
        let left = [3, -7, i16::MAX];
        let right = [5, 2, 2];
        assert_eq!(applied(&Op::sum::<i16>(), &left, &right), [8, -5, i16::MIN + 1]);
        assert_eq!(applied(&Op::product::<i16>(), &left, &right), [15, -14, -2]);
        assert_eq!(applied(&Op::min::<i16>(), &left, &right), [3, -7, 2]);
        assert_eq!(applied(&Op::max::<i16>(), &left, &right), [5, 2, i16::MAX]);
        assert_eq!(applied(&Op::product::<f64>(), &[0.5, -2.0], &[4.0, 3.0]), [2.0, -6.0]);
        assert_eq!(applied(&Op::band(), &[0b1100_u8], &[0b1010]), [0b1000]);
        assert_eq!(applied(&Op::bor(), &[0b1100_u8], &[0b1010]), [0b1110]);
        assert_eq!(applied(&Op::bxor(), &[0b1100_u8], &[0b1010]), [0b0110]);
    }
}
