//! Small scopes, explored completely.

use tagmatch_sim::Scope;

const SMALL: Scope = Scope {
    receives: 2,
    messages: 2,
    cancels: 1,
    tags: 2,
    slots: 2,
    second_passes: false,
    is_thorough: true,
};

#[test]
fn small() {
    for second_passes in [false, true] {
        let begin = std::time::Instant::now();
        let scope = Scope { second_passes, ..SMALL };
        let found = scope.explore();
        eprintln!("{:?} {found:#?}", begin.elapsed());
        found.unwrap();
    }
}
