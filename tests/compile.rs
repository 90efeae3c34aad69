//! Programs that must not compile: an operation that would outlive its memory, and a worker for one
//! thread that two threads would use.

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
