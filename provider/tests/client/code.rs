//! What a function answers.

/// A count, or libfabric's positive error number.
pub(crate) type Code = Result<usize, i32>;

/// The answer of a function: a count, or a negative error number.
pub(crate) fn code(answer: impl TryInto<i64>) -> Code {
    let answer = answer.try_into().ok().expect("an answer of 64 bits");
    usize::try_from(answer).map_err(|_| i32::try_from(-answer).expect("an error number"))
}

/// Calls a function of a table. The table and the function are there: `tables.rs` checks that.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let table = $table;
        // SAFETY: the provider's tables live as long as the process. The arguments are those of the
        // caller of this function, who gives objects that the provider has given, and memory that
        // lives long enough.
        unsafe { ((*table).$function.expect("a function"))($($argument),*) }
    }};
}
pub(crate) use call;
