//! Suggestions for misspelt names, for error messages.

/// Returns the end of a message about an unknown name: the known name that was probably meant, and the list
/// of all.
pub fn among(text: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(text, known) {
        Some(name) => format!("; did you mean '{name}'? There are {all}"),
        None => format!("; there are {all}"),
    }
}

/// Returns the known name that differs from `text` by the fewest edits: at most one for each three letters,
/// and at least one.
fn nearest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let most = (text.chars().count() / 3).max(1);
    let distances = known.iter().map(|name| (distance(text, name), *name));
    distances
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|best| best.1)
}

/// Returns the number of edits between two texts: letters inserted, removed, replaced, or exchanged with
/// their neighbour (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_probably_meant_is_suggested() {
        assert_eq!(
            among("ofset", &["offset", "length"]),
            "; did you mean 'offset'? There are offset, length"
        );
        assert_eq!(nearest("tpc", &["udp", "tcp"]), Some("tcp"));
        assert_eq!(nearest("x", &["tcp", "eth"]), None);
        assert_eq!(among("colour", &["offset"]), "; there are offset");
    }

    #[test]
    fn edits_are_counted() {
        for (one, other, edits) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3), ("é", "e", 1)]
        {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }
}
