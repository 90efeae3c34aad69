//! What must not compile: programs that would let an operation outlive its memory, or a worker for
//! one thread be used by two.

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
