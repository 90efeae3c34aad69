//! Atomic operations on elements of a region: types, operations, and what each of them does.
//!
//! The operations and types are those of libfabric's fi_atomic(3), `long double` and its complex
//! type left out: no type of Rust computes as the C compiler does there. Integers wrap. Elements
//! are in the byte order of the processor, so all workers of a job have the same one. They need no
//! alignment.

use tagmatch_device::{ElementChanges, QuickAccess, words};

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names of Rust's types")]
pub enum AtomicType {
    I8 = 1,
    U8 = 2,
    I16 = 3,
    U16 = 4,
    I32 = 5,
    U32 = 6,
    I64 = 7,
    U64 = 8,
    I128 = 9,
    U128 = 10,
    F32 = 11,
    F64 = 12,
    /// Real part and imaginary part, two `f32`.
    ComplexF32 = 13,
    /// Real part and imaginary part, two `f64`.
    ComplexF64 = 14,
}

/// What is done with an element. *Old* is the value in the region, *operand* the initiator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicOp {
    /// The smaller of both.
    Min = 1,
    /// The greater of both.
    Max = 2,
    /// Old plus operand.
    Sum = 3,
    /// Old times operand.
    Product = 4,
    /// 1 if either isn't zero, else 0.
    LogicalOr = 5,
    /// 1 if neither is zero, else 0.
    LogicalAnd = 6,
    /// 1 if exactly one isn't zero, else 0.
    LogicalXor = 7,
    /// Bit by bit.
    BitOr = 8,
    /// Bit by bit.
    BitAnd = 9,
    /// Bit by bit.
    BitXor = 10,
    /// Old stays; for fetching it. It takes no operand.
    Read = 11,
    /// The operand.
    Write = 12,
    /// The operand if the value to compare with equals old.
    CompareSwap = 13,
    /// The operand if the value to compare with doesn't equal old.
    CompareSwapNe = 14,
    /// The operand if the value to compare with is at most old.
    CompareSwapLe = 15,
    /// The operand if the value to compare with is less than old.
    CompareSwapLt = 16,
    /// The operand if the value to compare with is at least old.
    CompareSwapGe = 17,
    /// The operand if the value to compare with is greater than old.
    CompareSwapGt = 18,
    /// The operand's bits where the mask, which stands in the place of the value to compare with,
    /// has ones; old's bits elsewhere.
    MaskedSwap = 19,
}

/// An operation on a type that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ElementUse {
    pub(crate) op: AtomicOp,
    pub(crate) of: AtomicType,
}

impl AtomicType {
    /// All types.
    pub const ALL: [AtomicType; 14] = {
        use AtomicType::*;
        [I8, U8, I16, U16, I32, U32, I64, U64, I128, U128, F32, F64, ComplexF32, ComplexF64]
    };

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == byte)
    }

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            AtomicType::I8 | AtomicType::U8 => 1,
            AtomicType::I16 | AtomicType::U16 => 2,
            AtomicType::I32 | AtomicType::U32 | AtomicType::F32 => 4,
            AtomicType::I64 | AtomicType::U64 | AtomicType::F64 | AtomicType::ComplexF32 => 8,
            AtomicType::I128 | AtomicType::U128 | AtomicType::ComplexF64 => 16,
        }
    }

    fn is_complex(self) -> bool {
        matches!(self, AtomicType::ComplexF32 | AtomicType::ComplexF64)
    }

    fn is_integer(self) -> bool {
        !self.is_complex() && !matches!(self, AtomicType::F32 | AtomicType::F64)
    }
}

impl AtomicOp {
    /// All operations.
    pub const ALL: [AtomicOp; 19] = {
        use AtomicOp::*;
        [
            Min,
            Max,
            Sum,
            Product,
            LogicalOr,
            LogicalAnd,
            LogicalXor,
            BitOr,
            BitAnd,
            BitXor,
            Read,
            Write,
            CompareSwap,
            CompareSwapNe,
            CompareSwapLe,
            CompareSwapLt,
            CompareSwapGe,
            CompareSwapGt,
            MaskedSwap,
        ]
    };

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == byte)
    }

    /// How many operands each element takes: none, one, or also a value to compare with (a mask).
    pub const fn operands(self) -> usize {
        match self {
            AtomicOp::Read => 0,
            AtomicOp::CompareSwap
            | AtomicOp::CompareSwapNe
            | AtomicOp::CompareSwapLe
            | AtomicOp::CompareSwapLt
            | AtomicOp::CompareSwapGe
            | AtomicOp::CompareSwapGt
            | AtomicOp::MaskedSwap => 2,
            _ => 1,
        }
    }

    /// Whether elements of this type have the operation: complex numbers have no order, and only
    /// integers have bits.
    pub fn is_for(self, of: AtomicType) -> bool {
        match self {
            AtomicOp::BitOr | AtomicOp::BitAnd | AtomicOp::BitXor | AtomicOp::MaskedSwap => {
                of.is_integer()
            }
            AtomicOp::Min
            | AtomicOp::Max
            | AtomicOp::CompareSwapLe
            | AtomicOp::CompareSwapLt
            | AtomicOp::CompareSwapGe
            | AtomicOp::CompareSwapGt => !of.is_complex(),
            _ => true,
        }
    }
}

/// An atomic operation on as many elements as there is room for, with memory of the caller.
#[derive(Debug)]
pub struct FetchInto<'a> {
    /// The operation, and the type of the elements.
    pub element: ElementUse,
    /// The operands; before them, for an operation that compares, the values to compare with.
    pub operands: &'a [u8],
    /// Where the old values go.
    pub old: &'a mut [u8],
}

impl ElementUse {
    /// `None`: elements of this type don't have the operation ([`AtomicOp::is_for`]).
    pub fn new(op: AtomicOp, of: AtomicType) -> Option<Self> {
        op.is_for(of).then_some(ElementUse { op, of })
    }

    /// Bytes of the operands of so many elements.
    pub(crate) fn operand_bytes(self, count: usize) -> Option<usize> {
        self.op.operands().checked_mul(self.of.size())?.checked_mul(count)
    }

    /// The change of elements, one behind the other. `operands` are those of
    /// [`ElementUse::operand_bytes`]: for the operations that compare, first all values to compare
    /// with. The old values go to `old`, if there is one.
    pub(crate) fn change<'a>(
        self,
        operands: &'a [u8],
        mut old: Option<&'a mut [u8]>,
    ) -> impl FnMut(usize, &mut [u8]) + 'a {
        let size = self.of.size();
        let operand = if self.op.operands() == 2 { operands.len() / 2 } else { 0 };
        move |index, element| {
            if let Some(old) = &mut old {
                old[index * size..][..size].copy_from_slice(element);
            }
            let at = |start: usize| &operands[start + index * size..][..size];
            if self.op.operands() > 0 {
                self.of.change(self.op, element, at(operand), at(0));
            }
        }
    }

    /// Lets `access` change so many elements in one call. `false`: it hasn't, or these are not the
    /// bytes of so many elements.
    pub(crate) fn change_at_once(
        self,
        count: usize,
        operands: &[u8],
        old: Option<&mut [u8]>,
        access: impl FnOnce(QuickAccess<'_>) -> bool,
    ) -> bool {
        let size = self.of.size();
        let bytes = size.checked_mul(count);
        let fits = self.operand_bytes(count) == Some(operands.len())
            && old.as_ref().is_none_or(|old| Some(old.len()) == bytes);
        fits && {
            let change = &mut self.change(operands, old);
            access(QuickAccess::Change(ElementChanges { size, count, change }))
        }
    }

    /// Changes all elements of `region` as [`ElementUse::change`] does, by the processor if it can
    /// ([`words`]): peers that map the region do so, too.
    pub(crate) fn apply(self, region: &mut [u8], operands: &[u8], old: Option<&mut [u8]>) {
        let size = self.of.size();
        let count = region.len() / size;
        let mut change = self.change(operands, old);
        let changes = ElementChanges { size, count, change: &mut change };
        if !words::change_elements(region, changes) {
            for (index, element) in region.chunks_exact_mut(size).enumerate() {
                change(index, element);
            }
        }
    }
}

/// The number types, and what an operation makes of one element.
trait Arithmetic: Copy + PartialEq {
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn truth(is_true: bool) -> Self;
    /// `None`: the type has no order, or one of both is no number.
    fn order(self, other: Self) -> Option<std::cmp::Ordering>;
    /// `None`: the type has no bits to combine.
    fn bits(self, other: Self, mask: Self, op: AtomicOp) -> Option<Self>;
}

/// The new value of an element; `None`: it stays.
fn changed<E: Arithmetic>(op: AtomicOp, old: E, operand: E, compare: E) -> Option<E> {
    let zero = E::truth(false);
    let is_old = old != zero;
    let is_operand = operand != zero;
    let order = compare.order(old);
    let swap = |does: bool| does.then_some(operand);
    match op {
        AtomicOp::Min => swap(operand.order(old).is_some_and(|order| order.is_lt())),
        AtomicOp::Max => swap(operand.order(old).is_some_and(|order| order.is_gt())),
        AtomicOp::Sum => Some(old.sum(operand)),
        AtomicOp::Product => Some(old.product(operand)),
        AtomicOp::LogicalOr => Some(E::truth(is_old || is_operand)),
        AtomicOp::LogicalAnd => Some(E::truth(is_old && is_operand)),
        AtomicOp::LogicalXor => Some(E::truth(is_old != is_operand)),
        AtomicOp::Read => None,
        AtomicOp::Write => Some(operand),
        AtomicOp::CompareSwap => swap(compare == old),
        AtomicOp::CompareSwapNe => swap(compare != old),
        AtomicOp::CompareSwapLe => swap(order.is_some_and(|order| order.is_le())),
        AtomicOp::CompareSwapLt => swap(order.is_some_and(|order| order.is_lt())),
        AtomicOp::CompareSwapGe => swap(order.is_some_and(|order| order.is_ge())),
        AtomicOp::CompareSwapGt => swap(order.is_some_and(|order| order.is_gt())),
        AtomicOp::BitOr | AtomicOp::BitAnd | AtomicOp::BitXor | AtomicOp::MaskedSwap => {
            old.bits(operand, compare, op)
        }
    }
}

fn change<E: Arithmetic>(op: AtomicOp, old: &mut [u8], operand: &[u8], compare: &[u8]) {
    if let Some(new) = changed(op, E::read(old), E::read(operand), E::read(compare)) {
        new.write(old);
    }
}

impl AtomicType {
    fn change(self, op: AtomicOp, old: &mut [u8], operand: &[u8], compare: &[u8]) {
        let change = match self {
            AtomicType::I8 => change::<i8>,
            AtomicType::U8 => change::<u8>,
            AtomicType::I16 => change::<i16>,
            AtomicType::U16 => change::<u16>,
            AtomicType::I32 => change::<i32>,
            AtomicType::U32 => change::<u32>,
            AtomicType::I64 => change::<i64>,
            AtomicType::U64 => change::<u64>,
            AtomicType::I128 => change::<i128>,
            AtomicType::U128 => change::<u128>,
            AtomicType::F32 => change::<f32>,
            AtomicType::F64 => change::<f64>,
            AtomicType::ComplexF32 => change::<Complex<f32>>,
            AtomicType::ComplexF64 => change::<Complex<f64>>,
        };
        change(op, old, operand, compare);
    }
}

/// Reading and writing, which all number types do alike.
macro_rules! bytes_of {
    ($type:ty) => {
        fn read(bytes: &[u8]) -> Self {
            // The caller gives as many bytes as the type has.
            <$type>::from_ne_bytes(bytes.try_into().unwrap_or_default())
        }

        fn write(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_ne_bytes());
        }

        fn order(self, other: Self) -> Option<std::cmp::Ordering> {
            self.partial_cmp(&other)
        }
    };
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Arithmetic for $type {
            bytes_of!($type);

            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn truth(is_true: bool) -> Self {
                is_true.into()
            }

            fn bits(self, other: Self, mask: Self, op: AtomicOp) -> Option<Self> {
                Some(match op {
                    AtomicOp::BitOr => self | other,
                    AtomicOp::BitAnd => self & other,
                    AtomicOp::BitXor => self ^ other,
                    _ => (other & mask) | (self & !mask),
                })
            }
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64 i128 u128);

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Arithmetic for $type {
            bytes_of!($type);

            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            fn truth(is_true: bool) -> Self {
                if is_true { 1.0 } else { 0.0 }
            }

            fn bits(self, _: Self, _: Self, _: AtomicOp) -> Option<Self> {
                None
            }
        }
    )*};
}

floats!(f32 f64);

#[derive(Clone, Copy, PartialEq)]
struct Complex<E> {
    real: E,
    imaginary: E,
}

impl<E: Arithmetic + std::ops::Neg<Output = E>> Arithmetic for Complex<E> {
    fn read(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        Complex { real: E::read(real), imaginary: E::read(imaginary) }
    }

    fn write(self, bytes: &mut [u8]) {
        let (real, imaginary) = bytes.split_at_mut(bytes.len() / 2);
        self.real.write(real);
        self.imaginary.write(imaginary);
    }

    fn sum(self, other: Self) -> Self {
        let real = self.real.sum(other.real);
        Complex { real, imaginary: self.imaginary.sum(other.imaginary) }
    }

    fn product(self, other: Self) -> Self {
        let real = self.real.product(other.real).sum(-self.imaginary.product(other.imaginary));
        let first = self.real.product(other.imaginary);
        Complex { real, imaginary: first.sum(self.imaginary.product(other.real)) }
    }

    fn truth(is_true: bool) -> Self {
        Complex { real: E::truth(is_true), imaginary: E::truth(false) }
    }

    fn order(self, _: Self) -> Option<std::cmp::Ordering> {
        None
    }

    fn bits(self, _: Self, _: Self, _: AtomicOp) -> Option<Self> {
        None
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "takes numbers apart")]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    fn apply(op: AtomicOp, of: AtomicType, old: &[u8], operands: &[u8]) -> Vec<u8> {
        let mut region = old.to_vec();
        ElementUse::new(op, of).unwrap().apply(&mut region, operands, None);
        region
    }

    /// An element of an integer type as a wide integer, and back. Nothing of `Arithmetic` is used.
    fn wide(of: AtomicType, bytes: &[u8]) -> i128 {
        let mut all = [0; 16];
        all[..bytes.len()].copy_from_slice(bytes);
        let value = u128::from_le_bytes(all);
        let bits = 8 * bytes.len() as u32;
        match of {
            AtomicType::I8
            | AtomicType::I16
            | AtomicType::I32
            | AtomicType::I64
            | AtomicType::I128 => ((value << (128 - bits)) as i128) >> (128 - bits),
            _ => value as i128,
        }
    }

    fn expected(op: AtomicOp, of: AtomicType, old: i128, operand: i128, compare: i128) -> i128 {
        let order = |a: i128, b: i128| match of {
            AtomicType::U128 => (a as u128).cmp(&(b as u128)),
            _ => a.cmp(&b),
        };
        let if_ordered = |wanted: &[Ordering]| {
            if wanted.contains(&order(compare, old)) { operand } else { old }
        };
        match op {
            AtomicOp::Min => {
                if order(operand, old) == Ordering::Less {
                    operand
                } else {
                    old
                }
            }
            AtomicOp::Max => {
                if order(operand, old) == Ordering::Greater {
                    operand
                } else {
                    old
                }
            }
            AtomicOp::Sum => old.wrapping_add(operand),
            AtomicOp::Product => old.wrapping_mul(operand),
            AtomicOp::LogicalOr => i128::from(old != 0 || operand != 0),
            AtomicOp::LogicalAnd => i128::from(old != 0 && operand != 0),
            AtomicOp::LogicalXor => i128::from((old != 0) != (operand != 0)),
            AtomicOp::BitOr => old | operand,
            AtomicOp::BitAnd => old & operand,
            AtomicOp::BitXor => old ^ operand,
            AtomicOp::Read => old,
            AtomicOp::Write => operand,
            AtomicOp::CompareSwap => if_ordered(&[Ordering::Equal]),
            AtomicOp::CompareSwapNe => if_ordered(&[Ordering::Less, Ordering::Greater]),
            AtomicOp::CompareSwapLe => if_ordered(&[Ordering::Less, Ordering::Equal]),
            AtomicOp::CompareSwapLt => if_ordered(&[Ordering::Less]),
            AtomicOp::CompareSwapGe => if_ordered(&[Ordering::Greater, Ordering::Equal]),
            AtomicOp::CompareSwapGt => if_ordered(&[Ordering::Greater]),
            AtomicOp::MaskedSwap => (operand & compare) | (old & !compare),
        }
    }

    #[test]
    fn integers_of_each_type_do_what_wide_integers_do() {
        let interesting =
            [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff_ffff_ffff_ffff, -1, -2, i128::MIN, i128::MAX];
        for of in AtomicType::ALL.into_iter().filter(|of| of.is_integer()) {
            let size = of.size();
            let bytes = |value: i128| value.to_le_bytes()[..size].to_vec();
            for op in AtomicOp::ALL {
                for (old, operand) in interesting.iter().flat_map(|a| interesting.map(|b| (*a, b)))
                {
                    for compare in [0, old, operand, -1] {
                        let operands = match op.operands() {
                            0 => Vec::new(),
                            1 => bytes(operand),
                            _ => [bytes(compare), bytes(operand)].concat(),
                        };
                        let new = apply(op, of, &bytes(old), &operands);
                        let as_wide = |value| wide(of, &bytes(value));
                        let expected =
                            expected(op, of, as_wide(old), as_wide(operand), as_wide(compare));
                        assert_eq!(new, bytes(expected), "{op:?} {of:?} {old} {operand} {compare}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_with_fractions_and_complex_ones_compute_as_theirs_do() {
        let f64s = |values: &[f64]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
        let f32s = |values: &[f32]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
        let f64_ = AtomicType::F64;
        assert_eq!(
            apply(AtomicOp::Sum, f64_, &f64s(&[1.5, -2.0]), &f64s(&[0.25, 2.0])),
            f64s(&[1.75, 0.0])
        );
        assert_eq!(apply(AtomicOp::Max, f64_, &f64s(&[1.5]), &f64s(&[f64::NAN])), f64s(&[1.5]));
        assert_eq!(
            apply(AtomicOp::Min, AtomicType::F32, &f32s(&[1.5]), &f32s(&[-1.0])),
            f32s(&[-1.0])
        );
        assert_eq!(apply(AtomicOp::LogicalAnd, f64_, &f64s(&[0.5]), &f64s(&[-2.0])), f64s(&[1.0]));
        let swap = [f64s(&[2.0]), f64s(&[9.0])].concat();
        assert_eq!(apply(AtomicOp::CompareSwapGt, f64_, &f64s(&[1.0]), &swap), f64s(&[9.0]));
        assert_eq!(apply(AtomicOp::CompareSwapGt, f64_, &f64s(&[2.0]), &swap), f64s(&[2.0]));
        let complex = AtomicType::ComplexF64;
        let product = apply(AtomicOp::Product, complex, &f64s(&[1.0, 2.0]), &f64s(&[3.0, -1.0]));
        assert_eq!(product, f64s(&[5.0, 5.0]));
        let sum =
            apply(AtomicOp::Sum, AtomicType::ComplexF32, &f32s(&[1.0, 2.0]), &f32s(&[3.0, -1.0]));
        assert_eq!(sum, f32s(&[4.0, 1.0]));
        let truth = apply(AtomicOp::LogicalOr, complex, &f64s(&[0.0, 0.0]), &f64s(&[0.0, 3.0]));
        assert_eq!(truth, f64s(&[1.0, 0.0]));
    }

    #[test]
    fn elements_of_a_type_have_their_own_operands() {
        let old: Vec<u8> = [10u32, 20, 30].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let compare = [10u32, 0, 30].iter().flat_map(|v| v.to_ne_bytes());
        let operand = [1u32, 2, 3].iter().flat_map(|v| v.to_ne_bytes());
        let operands: Vec<u8> = compare.chain(operand).collect();
        let new: Vec<u8> = [1u32, 20, 3].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(apply(AtomicOp::CompareSwap, AtomicType::U32, &old, &operands), new);
    }

    #[test]
    fn each_type_has_the_operations_that_libfabric_gives_it() {
        let count = |of: AtomicType| AtomicOp::ALL.iter().filter(|op| op.is_for(of)).count();
        assert_eq!(
            AtomicType::ALL.map(count),
            [19, 19, 19, 19, 19, 19, 19, 19, 19, 19, 15, 15, 9, 9]
        );
    }
}
