//! Matches as rules keep them: only the words that the mask has, and the mask once for all rules
//! that share it. A table of a million rules has few masks.

use std::sync::Arc;

use tollgate_packet::{FLOW_WORDS, FlowKey, FlowMask, FlowMatch};

use crate::extra::{EXTRA_WORDS, ExtraKey, ExtraMatch};

const WORDS: usize = FLOW_WORDS + EXTRA_WORDS;

/// Everything that rules can match: the words of a packet's fields and those of its pipeline
/// fields. Also their masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Words([u64; WORDS]);

impl Words {
    pub(crate) fn new(key: &FlowKey, extra: &ExtraKey) -> Self {
        let mut words = [0; WORDS];
        let values = key.words().iter().copied().chain(extra.words());
        words.iter_mut().zip(values).for_each(|(word, value)| *word = value);
        Self(words)
    }

    pub(crate) fn get(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn key(&self) -> FlowKey {
        let mut key = FlowKey::default();
        key.words_mut().iter_mut().zip(&self.0).for_each(|(word, value)| *word = *value);
        key
    }

    fn extra(&self) -> ExtraKey {
        let mut extra = [0; EXTRA_WORDS];
        let values = self.0.iter().skip(FLOW_WORDS);
        extra.iter_mut().zip(values).for_each(|(word, value)| *word = *value);
        ExtraKey::from_words(&extra)
    }
}

/// The bits that rules match.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleMask(Words);

impl RuleMask {
    pub(crate) fn new(flow: &FlowMask, extra: &ExtraKey) -> Self {
        Self(Words::new(&flow.0, extra))
    }

    pub(crate) fn word(&self, word: usize) -> u64 {
        self.0.get(word)
    }

    pub(crate) fn flow(&self) -> FlowMask {
        FlowMask(self.0.key())
    }

    pub(crate) fn extra(&self) -> ExtraKey {
        self.0.extra()
    }

    /// The words that are not zero, with their numbers.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.0.iter().copied().enumerate().filter(|(_, mask)| *mask != 0)
    }
}

/// What a rule matches, in as many words as its mask has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleMatch {
    mask: Arc<RuleMask>,
    /// The values in the words of the mask that are not zero.
    values: Box<[u64]>,
}

impl RuleMatch {
    /// A match with a mask of its own. [`RuleTable::matcher`](crate::RuleTable::matcher) gives one
    /// that shares its mask with the rules of a table.
    pub fn new(flow: &FlowMatch, extra: &ExtraMatch) -> Self {
        Self::sharing(flow, extra, |_| None)
    }

    /// A match with the mask that `known` gives for it, or else one of its own.
    pub(crate) fn sharing(
        flow: &FlowMatch,
        extra: &ExtraMatch,
        known: impl FnOnce(&RuleMask) -> Option<Arc<RuleMask>>,
    ) -> Self {
        let mask = RuleMask::new(flow.mask(), extra.mask());
        let words = Words::new(flow.key(), extra.key());
        let values = mask.lanes().map(|(word, _)| words.get(word)).collect();
        Self { mask: known(&mask).unwrap_or_else(|| Arc::new(mask)), values }
    }

    pub(crate) fn mask(&self) -> &Arc<RuleMask> {
        &self.mask
    }

    /// The values in the words of the mask that are not zero.
    pub(crate) fn values(&self) -> &[u64] {
        &self.values
    }

    pub(crate) fn words(&self) -> Words {
        let mut words = Words([0; WORDS]);
        let places = words.0.iter_mut().zip(&self.mask.0.0).filter(|(_, mask)| **mask != 0);
        places.zip(&self.values).for_each(|((place, _), value)| *place = *value);
        words
    }

    /// What of a packet's fields is matched.
    pub fn flow(&self) -> FlowMatch {
        FlowMatch::new(&self.words().key(), self.mask.flow())
    }

    /// What of the pipeline fields is matched.
    pub fn extra(&self) -> ExtraMatch {
        ExtraMatch::new(&self.words().extra(), self.mask.extra())
    }

    /// Whether some packet could match both.
    pub fn overlaps(&self, flow: &FlowMatch, extra: &ExtraMatch) -> bool {
        let masks = Words::new(&flow.mask().0, extra.mask());
        self.overlaps_words(&masks, &Words::new(flow.key(), extra.key()))
    }

    /// Whether some packet could match both.
    pub(crate) fn overlaps_rule(&self, other: &Self) -> bool {
        self.overlaps_words(&other.mask.0, &other.words())
    }

    fn overlaps_words(&self, masks: &Words, values: &Words) -> bool {
        let others = masks.0.iter().zip(&values.0);
        self.words_and_masks()
            .zip(others)
            .all(|((value, mask), (other_mask, other))| (value ^ other) & mask & other_mask == 0)
    }

    /// Whether every packet that matches this matches the other too.
    pub fn is_within(&self, flow: &FlowMatch, extra: &ExtraMatch) -> bool {
        let masks = Words::new(&flow.mask().0, extra.mask());
        let values = Words::new(flow.key(), extra.key());
        let others = masks.0.iter().zip(&values.0);
        self.words_and_masks().zip(others).all(|((value, mask), (other_mask, other))| {
            other_mask & !mask == 0 && (value ^ other) & other_mask == 0
        })
    }

    fn words_and_masks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.words().0.into_iter().zip(self.mask.0.0)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_packet::MacAddr;

    use super::*;

    fn sample() -> (FlowMatch, ExtraMatch) {
        let key = FlowKey {
            eth_type: 0x800,
            l4_dst: 80,
            eth_dst: MacAddr([1, 2, 3, 4, 5, 6]),
            ..FlowKey::default()
        };
        let mask = FlowKey { eth_type: u16::MAX, l4_dst: 0xfff0, ..FlowKey::default() };
        let mut registers = ExtraKey::ZERO;
        registers.regs[5] = 7;
        (FlowMatch::new(&key, FlowMask(mask)), ExtraMatch::new(&registers, registers))
    }

    #[test]
    fn nothing_of_a_match_is_lost() {
        let (flow, extra) = sample();
        let compact = RuleMatch::new(&flow, &extra);
        assert_eq!((compact.flow(), compact.extra()), (flow, extra));
        assert_eq!(compact.values().len(), 3);
        let any = RuleMatch::new(&FlowMatch::ANY, &ExtraMatch::ANY);
        assert_eq!(
            (any.flow(), any.extra(), any.values()),
            (FlowMatch::ANY, ExtraMatch::ANY, &[][..])
        );
    }

    #[test]
    fn matches_compare_as_what_they_were_made_of() {
        let (flow, extra) = sample();
        let other = FlowMatch::new(&FlowKey { l4_dst: 443, ..*flow.key() }, *flow.mask());
        let whole = RuleMatch::new(&flow, &extra);
        let wide = RuleMatch::new(&flow, &ExtraMatch::ANY);
        assert!(whole.is_within(&flow, &ExtraMatch::ANY) && whole.is_within(&flow, &extra));
        assert!(!wide.is_within(&flow, &extra) && !whole.is_within(&other, &extra));
        assert!(whole.overlaps(&flow, &ExtraMatch::ANY) && wide.overlaps(&flow, &extra));
        assert!(!whole.overlaps(&other, &ExtraMatch::ANY));
        assert!(whole.overlaps_rule(&wide));
        assert!(!whole.overlaps_rule(&RuleMatch::new(&other, &extra)));
    }
}
