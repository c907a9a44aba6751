//! First-in-first-out lists of tenant slots that share one array of links: a slot is in at most one
//! list of a [`Links`], may leave from the middle, and nothing is allocated.

const NOBODY: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u16,
    after: u16,
}

/// The links of all slots.
#[derive(Clone, Debug)]
pub(crate) struct Links(Box<[Link]>);

/// One list's ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u16,
    tail: u16,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NOBODY, tail: NOBODY };

    pub(crate) fn head(&self) -> Option<u16> {
        (self.head != NOBODY).then_some(self.head)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NOBODY
    }
}

impl Links {
    pub(crate) fn new(slots: u16) -> Self {
        Self(vec![Link { before: NOBODY, after: NOBODY }; usize::from(slots)].into())
    }

    /// Takes over the links of the slots below `end`.
    pub(crate) fn copy_from(&mut self, other: &Self, end: usize) {
        copy_prefix(&mut self.0, &other.0, end);
    }

    /// The slots of a list, first to last.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = u16> {
        std::iter::successors(list.head(), |slot| self.after(*slot))
    }

    fn get_mut(&mut self, slot: u16) -> Option<&mut Link> {
        self.0.get_mut(usize::from(slot))
    }

    /// The slot behind this one in its list.
    pub(crate) fn after(&self, slot: u16) -> Option<u16> {
        let after = self.0.get(usize::from(slot))?.after;
        (after != NOBODY).then_some(after)
    }

    /// Appends a slot that is in no list of these links.
    pub(crate) fn push_back(&mut self, list: &mut List, slot: u16) {
        let before = list.tail;
        let Some(link) = self.get_mut(slot) else { return };
        *link = Link { before, after: NOBODY };
        match self.get_mut(before) {
            Some(last) => last.after = slot,
            None => list.head = slot,
        }
        list.tail = slot;
    }

    /// Takes a slot out of the list that it is in.
    pub(crate) fn remove(&mut self, list: &mut List, slot: u16) {
        let Some(&mut Link { before, after }) = self.get_mut(slot) else { return };
        match self.get_mut(before) {
            Some(previous) => previous.after = after,
            None => list.head = after,
        }
        match self.get_mut(after) {
            Some(next) => next.before = before,
            None => list.tail = before,
        }
    }

    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<u16> {
        let slot = list.head()?;
        self.remove(list, slot);
        Some(slot)
    }
}

/// Copies the first `end` elements, as far as both have them.
pub(crate) fn copy_prefix<T: Copy>(to: &mut [T], from: &[T], end: usize) {
    for (to, from) in to.iter_mut().zip(from).take(end) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn list_behaves_like_a_deque(ops in prop::collection::vec((0u8..3, 0u16..8), 0..200)) {
            let mut links = Links::new(8);
            let mut list = List::EMPTY;
            let mut model: Vec<u16> = Vec::new();
            for (op, slot) in ops {
                match op {
                    0 if !model.contains(&slot) => {
                        links.push_back(&mut list, slot);
                        model.push(slot);
                    }
                    1 if model.contains(&slot) => {
                        links.remove(&mut list, slot);
                        model.retain(|other| *other != slot);
                    }
                    2 => {
                        let expected = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(links.pop_front(&mut list), expected);
                    }
                    _ => {}
                }
                prop_assert_eq!(list.head(), model.first().copied());
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
        }
    }
}
