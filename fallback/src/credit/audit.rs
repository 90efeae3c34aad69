//! An audit of the credit that a worker has granted.

use super::{Amount, CreditConfig, CreditGrant, Pool};

impl Pool {
    /// The errors in the books of the pool and all grants that exist.
    pub(crate) fn audit<'a>(
        &self,
        grants: impl Iterator<Item = &'a CreditGrant> + Clone,
    ) -> Vec<String> {
        let sum = |grants: &mut dyn Iterator<Item = &'a CreditGrant>| {
            grants.fold(Amount::default(), |sum, grant| sum.plus(grant.from_pool))
        };
        let Pool { config: CreditConfig { pool, .. }, free, kept } = self;
        let mut wrong = Vec::new();
        let out = sum(&mut grants.clone());
        if free.plus(out) != *pool {
            wrong.push(format!("of {pool:?}, {free:?} are free and {out:?} granted"));
        }
        let of_dead = sum(&mut grants.clone().filter(|grant| grant.closed));
        if of_dead != *kept {
            wrong.push(format!("peers that are down keep {of_dead:?}; {kept:?} are counted"));
        }
        let impossible = grants.filter(|grant| !grant.is_possible());
        wrong.extend(impossible.map(|grant| format!("an impossible grant: {grant:?}")));
        wrong
    }
}

impl CreditGrant {
    /// Whether the numbers of a grant agree: what is out and held is within the limit, and a peer
    /// that is down has no more than its messages hold.
    fn is_possible(&self) -> bool {
        let out = self.outstanding();
        let is_over = self.closed && out == Amount::default();
        let is_open = !self.closed && self.limit.covers(out.plus(self.held));
        let is_kept = self.is_held() || self.from_pool == Amount::default();
        is_open || is_over && is_kept
    }
}
