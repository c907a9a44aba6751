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

/// Levenshtein distance in bytes whatever their case, of at most the first 64 of them.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (a.get(..64).unwrap_or(a), b.get(..64).unwrap_or(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut previous = i + 1;
        let mut next = vec![previous];
        for (above, right) in row.iter().skip(1).zip(b) {
            let cost = diagonal + usize::from(!left.eq_ignore_ascii_case(right));
            previous = cost.min(above + 1).min(previous + 1);
            diagonal = *above;
            next.push(previous);
        }
        row = next;
    }
    row.last().copied().unwrap_or(a.len())
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
        assert_eq!(distance(b"same", b"same"), 0);
    }
}
