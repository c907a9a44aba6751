//! Rules that do the same share one description of it: a million rules usually do a few things.

use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use tollgate_openflow::Instructions;

use super::limits::BEHAVIOURS_SLACK;
use super::program::Program;
use super::rule::Behaviour;

/// The behaviours of one bridge's rules.
#[derive(Debug, Default)]
pub(super) struct Behaviours {
    /// With the hash of the instructions. Those that no rule has any longer are dead weight until
    /// the next purge.
    known: HashTable<(u64, Weak<Behaviour>)>,
    purge_at: usize,
    hasher: ahash::RandomState,
}

impl Behaviours {
    /// The behaviour of these instructions, which `program` carries out.
    pub(super) fn share(
        &mut self,
        instructions: &Instructions,
        program: Program,
    ) -> Arc<Behaviour> {
        let hash = self.hasher.hash_one(instructions);
        let mut same = None;
        self.known.find(hash, |(_, known)| {
            same = known.upgrade().filter(|known| known.instructions == *instructions);
            same.is_some()
        });
        if let Some(known) = same {
            return known;
        }
        if self.known.len() >= self.purge_at {
            self.known.retain(|(_, known)| known.strong_count() > 0);
            self.purge_at = 2 * self.known.len() + BEHAVIOURS_SLACK;
        }
        let behaviour = Arc::new(Behaviour { instructions: instructions.clone(), program });
        self.known.insert_unique(hash, (hash, Arc::downgrade(&behaviour)), |(hash, _)| *hash);
        behaviour
    }
}

#[cfg(test)]
mod tests {
    use tollgate_openflow::Instruction;

    use super::*;

    fn goto(table: u8) -> Instructions {
        Instructions::new(vec![Instruction::GotoTable(table)]).unwrap()
    }

    #[test]
    fn what_is_the_same_is_shared_and_what_is_gone_is_forgotten() {
        let mut behaviours = Behaviours::default();
        let first = behaviours.share(&goto(1), Program::default());
        assert!(Arc::ptr_eq(&first, &behaviours.share(&goto(1), Program::default())));
        assert!(!Arc::ptr_eq(&first, &behaviours.share(&goto(2), Program::default())));
        for _ in 0..100 {
            for table in 2..200 {
                behaviours.share(&goto(table), Program::default());
            }
        }
        assert!(behaviours.known.len() <= 200 + 2 * BEHAVIOURS_SLACK);
        assert!(Arc::ptr_eq(&first, &behaviours.share(&goto(1), Program::default())));
    }
}
