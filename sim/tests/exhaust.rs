//! Small scopes, explored completely.

use tagmatch_sim::Scope;

#[test]
fn small() {
    for (r, m, c, t) in [(1,1,1,2),(2,1,0,2),(1,2,0,2),(2,2,0,1)] {
    for second_passes in [false, true] {
        let begin = std::time::Instant::now();
        let scope = Scope { second_passes, receives: r, messages: m, cancels: c, tags: t, slots: 2, is_thorough: true };
        let found = scope.explore(2).unwrap();
        eprintln!("{r} {m} {c} tags {t} {second_passes} {:?} {found:?}", begin.elapsed());
    }
    }
}
