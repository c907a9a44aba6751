//! Frames that a PMD keeps while the slow path decides about them: it has them at hand when the answer
//! comes, so they need not come back through another core's caches.

use crate::limits::{KEPT_BYTES, KEPT_FRAMES};

/// Frames of one lane, the oldest first. Without room for one more, that one is not kept.
#[derive(Debug, Default)]
pub(crate) struct KeptFrames {
    bytes: Box<[u8]>,
    /// Used round about.
    places: Box<[Place]>,
    /// Where in `places` the oldest is.
    first: usize,
    /// How many there are.
    len: usize,
    /// Where in `bytes` the next may begin.
    end: usize,
    /// Of the last one.
    ticket: u32,
}

/// Names a frame that is kept, as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// As it stands in a record, where 0 is none.
    pub(crate) fn to_record(ticket: Option<Self>) -> u32 {
        ticket.map_or(0, |Self(number)| number)
    }

    pub(crate) fn from_record(number: u32) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    ticket: u32,
    at: usize,
    len: usize,
}

impl KeptFrames {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; KEPT_BYTES].into(),
            places: vec![Place::default(); KEPT_FRAMES].into(),
            ..Self::default()
        }
    }

    /// Keeps a frame, if there is room.
    pub(crate) fn keep(&mut self, frame: &[u8]) -> Option<Ticket> {
        let at = self.room_for(frame.len())?;
        let free = (self.first + self.len) % self.places.len().max(1);
        self.bytes.get_mut(at..at + frame.len())?.copy_from_slice(frame);
        let ticket = self.ticket.checked_add(1).unwrap_or(1);
        *self.places.get_mut(free)? = Place { ticket, at, len: frame.len() };
        (self.ticket, self.len, self.end) = (ticket, self.len + 1, at + frame.len());
        Some(Ticket(ticket))
    }

    /// Where so many bytes may lie, in one piece.
    fn room_for(&self, len: usize) -> Option<usize> {
        if self.len >= self.places.len() {
            return None;
        }
        let capacity = self.bytes.len();
        let Some(oldest) = self.oldest() else { return (len <= capacity).then_some(0) };
        if self.end > oldest.at {
            let behind = self.end + len <= capacity;
            return behind.then_some(self.end).or_else(|| (len <= oldest.at).then_some(0));
        }
        (self.end + len <= oldest.at).then_some(self.end)
    }

    fn oldest(&self) -> Option<Place> {
        let place = self.places.get(self.first)?;
        (self.len > 0).then_some(*place)
    }

    /// Gives up the frame that was kept last.
    pub(crate) fn forget(&mut self, Ticket(number): Ticket) {
        let last =
            (self.first + self.len).checked_sub(1).map(|last| last % self.places.len().max(1));
        if let Some(place) = last.and_then(|last| self.places.get(last))
            && self.len > 0
            && place.ticket == number
        {
            (self.len, self.end) = (self.len - 1, place.at);
        }
    }

    /// Takes a frame out, and all that are older. It can be read until the next is kept.
    pub(crate) fn take(&mut self, Ticket(number): Ticket) -> Option<&[u8]> {
        while let Some(Place { ticket, at, len }) = self.oldest() {
            self.first = (self.first + 1) % self.places.len().max(1);
            self.len -= 1;
            if ticket == number {
                return self.bytes.get(at..at + len);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The oracle is a queue of vectors.
        #[test]
        fn frames_come_out_as_they_were_kept(
            steps in prop::collection::vec((any::<bool>(), 1..9000_usize, any::<u8>()), 1..600),
        ) {
            let mut kept = KeptFrames::new();
            let mut model: VecDeque<(Ticket, Vec<u8>)> = VecDeque::new();
            for (puts, len, byte) in steps {
                if !puts {
                    if let Some((ticket, frame)) = model.pop_front() {
                        prop_assert_eq!(kept.take(ticket), Some(&frame[..]));
                        prop_assert_eq!(kept.take(ticket), None);
                        model.clear();
                    }
                    continue;
                }
                let frame = vec![byte; len];
                match kept.keep(&frame) {
                    Some(ticket) => model.push_back((ticket, frame)),
                    None => {
                        let waiting: usize = model.iter().map(|(_, frame)| frame.len()).sum();
                        // What does not fit behind the last is lost at the end, once.
                        prop_assert!(waiting + 2 * 9000 > KEPT_BYTES || model.len() == KEPT_FRAMES);
                    }
                }
            }
            for (ticket, frame) in model {
                prop_assert_eq!(kept.take(ticket), Some(&frame[..]));
            }
        }
    }

    #[test]
    fn there_are_no_more_frames_than_places_and_none_without_memory() {
        let mut kept = KeptFrames::new();
        let tickets: Vec<_> = (0..=KEPT_FRAMES).map(|_| kept.keep(&[7; 14])).collect();
        assert_eq!(tickets.iter().flatten().count(), KEPT_FRAMES);
        assert_eq!(kept.take(tickets[9].unwrap()), Some(&[7; 14][..]));
        assert_eq!(kept.take(tickets[3].unwrap()), None, "older ones go with it");
        assert_eq!(KeptFrames::default().keep(&[7; 14]), None);
    }

    #[test]
    fn no_ticket_is_told_from_any_other() {
        let mut kept = KeptFrames { ticket: u32::MAX, ..KeptFrames::new() };
        let ticket = kept.keep(&[1]);
        assert_eq!(Ticket::from_record(Ticket::to_record(ticket)), ticket);
        assert!(ticket.is_some());
        assert_eq!(Ticket::from_record(Ticket::to_record(None)), None);
    }
}
