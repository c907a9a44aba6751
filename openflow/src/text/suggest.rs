//! "Did you mean ...?"

/// The candidate nearest to a misspelt word, if it is near enough to be what was meant.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // A third of the letters may be wrong, but never more than three.
    let tolerated = (word.len() / 3).clamp(1, 3);
    candidates
        .map(|candidate| (distance(word.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(distance, _)| *distance <= tolerated)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be inserted, deleted, replaced or exchanged with their neighbour to make
/// one word of the other, whatever their case (optimal string alignment); of the first 64 letters.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (a.get(..64).unwrap_or(a), b.get(..64).unwrap_or(b));
    let same = |x: &u8, y: &u8| x.eq_ignore_ascii_case(y);
    let mut two_above: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut before: Option<&u8> = None;
    for (i, left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX);
            let mut cost = at(&above, j) + usize::from(!same(left, right));
            cost = cost.min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            if let (Some(before), Some(next)) = (before, j.checked_sub(1).and_then(|j| b.get(j)))
                && same(before, right)
                && same(left, next)
            {
                cost = cost.min(at(&two_above, j - 1) + 1);
            }
            row.push(cost);
        }
        two_above = std::mem::replace(&mut above, row);
        before = Some(left);
    }
    above.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest_name_and_none_when_all_are_far() {
        let names = ["tp_src", "tp_dst", "dl_dst", "ip"];
        assert_eq!(nearest("tp_dstt", names.into_iter()), Some("tp_dst"));
        assert_eq!(nearest("TP_SRC", names.into_iter()), Some("tp_src"));
        assert_eq!(nearest("dldst", names.into_iter()), Some("dl_dst"));
        assert_eq!(nearest("nonsense", names.into_iter()), None);
    }

    #[test]
    fn distance_counts_insertions_deletions_and_substitutions() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b""), 3);
        assert_eq!(distance(b"same", b"SAME"), 0);
    }

    #[test]
    fn neighbours_that_are_exchanged_count_once() {
        assert_eq!(distance(b"kbsp", b"kbps"), 1);
        assert_eq!(distance(b"ab", b"ba"), 1);
        assert_eq!(distance(b"abcd", b"badc"), 2);
        assert_eq!(distance(b"ca", b"abc"), 3);
    }
}
