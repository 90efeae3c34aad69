//! Small scopes, explored completely: nothing is found. Without optimization they take minutes. So
//! only `ci/parts/sim` runs all of them, in a release build.

use tagmatch_sim::{Explored, Scope, run_one_sided_scopes};

/// The scope with all messages through the list, and with one sender's past it.
fn both(scope: Scope) -> [Scope; 2] {
    [false, true].map(|second_passes| Scope { second_passes, ..scope })
}

fn passes(scope: Scope) -> Explored {
    match scope.explore(2) {
        Ok(explored) => explored,
        Err(failure) => panic!("{scope}: {failure}"),
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "long without optimization: ci/test sim")]
fn states_of_one_digest_have_one_future() {
    for (receives, messages, cancels, tags, least) in
        [(1, 1, 1, 2, 400), (2, 1, 0, 2, 3000), (1, 2, 0, 2, 2000)]
    {
        for scope in both(Scope::new(receives, messages, cancels, tags)) {
            let scope = Scope { all_names: true, ..scope };
            let explored = passes(Scope { is_thorough: true, ..scope });
            assert!(explored.states > least, "{scope}: {explored}");
            // The orders that are left out lead to no other outcome.
            assert_eq!(passes(scope).ends, explored.ends, "{scope}");
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "long without optimization: ci/test sim")]
fn nothing_is_found_in_small_scopes() {
    for (receives, messages, cancels, tags, least) in
        [(2, 1, 1, 2, 21_000), (1, 2, 1, 2, 7000), (2, 2, 0, 1, 12_000), (1, 3, 1, 1, 10_000)]
    {
        for scope in both(Scope::new(receives, messages, cancels, tags)) {
            let explored = passes(scope);
            assert!(explored.states > least, "{scope}: {explored}");
            println!("{scope}: {explored}");
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "long without optimization: ci/test sim")]
fn one_sided_operations_of_small_programs_in_every_order() {
    let all = run_one_sided_scopes().unwrap_or_else(|violation| panic!("{violation}"));
    println!("{all:?}");
    assert!(all.programs == 192 && all.orders > 50_000 && all.direct > 10_000, "{all:?}");
}

/// The smallest scopes that show planted slips. `lab/planted/slips/` names them.
mod smallest {
    use super::passes;
    use tagmatch_sim::Scope;

    #[test]
    fn one_receive_one_message_and_a_cancel() {
        passes(Scope::new(1, 1, 1, 1));
    }

    #[test]
    fn two_receives_and_one_message() {
        passes(Scope::new(2, 1, 0, 1));
    }

    #[test]
    fn two_receives_and_two_messages() {
        passes(Scope::new(2, 2, 0, 2));
    }

    #[test]
    fn two_receives_and_two_messages_one_of_them_past_the_list() {
        passes(Scope { second_passes: true, ..Scope::new(2, 2, 0, 2) });
    }

    #[test]
    fn two_receives_and_three_messages_one_senders_past_the_list() {
        passes(Scope { second_passes: true, held_max: 2, ..Scope::new(2, 3, 0, 2) });
    }

    #[test]
    fn two_receives_two_messages_and_a_cancel() {
        passes(Scope::new(2, 2, 1, 1));
    }

    #[test]
    fn messages_alone_while_few_completions_are_outstanding() {
        passes(Scope { held_max: 2, ..Scope::new(0, 4, 0, 1) });
    }

    /// The NIC is told the count with its next operation, and not before.
    #[test]
    fn two_receives_and_two_messages_when_the_count_is_told_late() {
        passes(Scope { sync_limit: 9, ..Scope::new(2, 2, 0, 1) });
    }
}
