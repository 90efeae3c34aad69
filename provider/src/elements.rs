//! The types and operations of atomic operations: fi_atomic(3).

use tagmatch::{AtomicOp, AtomicType};
use tagmatch_ofi_provider::AtomicForm;
use tagmatch_ofi_sys as sys;

/// The worker's names of an operation and a type. `None`: there is no such operation in this form,
/// or elements of the type don't have it.
pub(crate) fn of(
    datatype: sys::fi_datatype,
    op: sys::fi_op,
    form: AtomicForm,
) -> Option<(AtomicOp, AtomicType)> {
    let of = type_of(datatype)?;
    let op = operation(op)?;
    let has_form = match form {
        AtomicForm::Base => op.operands() == 1,
        AtomicForm::Fetch => op.operands() < 2,
        AtomicForm::Compare => op.operands() == 2,
    };
    (has_form && op.is_for(of)).then_some((op, of))
}

/// `long double` has no counterpart in Rust.
fn type_of(datatype: sys::fi_datatype) -> Option<AtomicType> {
    Some(match datatype {
        sys::FI_INT8 => AtomicType::I8,
        sys::FI_UINT8 => AtomicType::U8,
        sys::FI_INT16 => AtomicType::I16,
        sys::FI_UINT16 => AtomicType::U16,
        sys::FI_INT32 => AtomicType::I32,
        sys::FI_UINT32 => AtomicType::U32,
        sys::FI_INT64 => AtomicType::I64,
        sys::FI_UINT64 => AtomicType::U64,
        sys::FI_INT128 => AtomicType::I128,
        sys::FI_UINT128 => AtomicType::U128,
        sys::FI_FLOAT => AtomicType::F32,
        sys::FI_DOUBLE => AtomicType::F64,
        sys::FI_FLOAT_COMPLEX => AtomicType::ComplexF32,
        sys::FI_DOUBLE_COMPLEX => AtomicType::ComplexF64,
        _ => return None,
    })
}

fn operation(op: sys::fi_op) -> Option<AtomicOp> {
    Some(match op {
        sys::FI_MIN => AtomicOp::Min,
        sys::FI_MAX => AtomicOp::Max,
        sys::FI_SUM => AtomicOp::Sum,
        sys::FI_PROD => AtomicOp::Product,
        sys::FI_LOR => AtomicOp::LogicalOr,
        sys::FI_LAND => AtomicOp::LogicalAnd,
        sys::FI_LXOR => AtomicOp::LogicalXor,
        sys::FI_BOR => AtomicOp::BitOr,
        sys::FI_BAND => AtomicOp::BitAnd,
        sys::FI_BXOR => AtomicOp::BitXor,
        sys::FI_ATOMIC_READ => AtomicOp::Read,
        sys::FI_ATOMIC_WRITE => AtomicOp::Write,
        sys::FI_CSWAP => AtomicOp::CompareSwap,
        sys::FI_CSWAP_NE => AtomicOp::CompareSwapNe,
        sys::FI_CSWAP_LE => AtomicOp::CompareSwapLe,
        sys::FI_CSWAP_LT => AtomicOp::CompareSwapLt,
        sys::FI_CSWAP_GE => AtomicOp::CompareSwapGe,
        sys::FI_CSWAP_GT => AtomicOp::CompareSwapGt,
        sys::FI_MSWAP => AtomicOp::MaskedSwap,
        _ => return None,
    })
}
