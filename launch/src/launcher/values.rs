//! The values that a helper knows, and so need not ask the launcher for.

use std::collections::HashMap;

use crate::wire::{self, PmiLine};

/// For each job, the name of its key-value space, and what the launcher has told of it.
#[derive(Default)]
pub(super) struct KnownValues(HashMap<u32, (String, HashMap<String, String>)>);

impl KnownValues {
    pub(super) fn learn(&mut self, job: u32, name: String, values: Vec<(String, String)>) {
        self.0.entry(job).or_insert((name, HashMap::new())).1.extend(values);
    }

    /// The answer to a request of a process, if the helper can give it.
    pub(super) fn answer(&self, job: u32, request: &PmiLine) -> Option<String> {
        let (name, values) = self.0.get(&job)?;
        let is_get = request.command() == "get" && request.field("kvsname") == Some(name);
        let value = values.get(request.field("key").filter(|_| is_get)?)?;
        wire::line("get_result", &[("rc", "0"), ("msg", "success"), ("value", value)]).ok()
    }

    /// Forgets all jobs but these.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.0.retain(|job, _| is_kept(*job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_known_values_are_answered() {
        let mut known = KnownValues::default();
        let values = |value: &str| vec![("a".to_owned(), value.to_owned())];
        known.learn(1, "kvs".into(), values("b"));
        let answer = |known: &KnownValues, job, text: &str| {
            known.answer(job, &PmiLine::parse(text.as_bytes()).unwrap())
        };
        let get = "cmd=get kvsname=kvs key=a";
        let expected = "cmd=get_result rc=0 msg=success value=b\n";
        assert_eq!(answer(&known, 1, get).as_deref(), Some(expected));
        for other in [
            "cmd=get kvsname=kvs key=c",
            "cmd=get kvsname=other key=a",
            "cmd=get key=a",
            "cmd=get kvsname=kvs",
            "cmd=put kvsname=kvs key=a value=d",
            "cmd=get kvsname=kvs key=PMI_dead_processes",
        ] {
            assert_eq!(answer(&known, 1, other), None, "{other}");
        }
        assert_eq!(answer(&known, 2, get), None, "another job");
        known.learn(1, "kvs".into(), values("later"));
        assert!(answer(&known, 1, get).unwrap().ends_with("value=later\n"));
        known.keep(|job| job != 1);
        assert_eq!(answer(&known, 1, get), None);
    }
}
