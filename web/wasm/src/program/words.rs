//! Words of a command line, apart by spaces; `{1..3}` in a word stands for three words, as in a shell.

use super::error::Error;

/// Greatest number of words.
const WORDS_MAX: usize = 4096;

/// Returns the words of a text.
///
/// # Errors
/// [`Error::Words`] if there are more than 4096.
pub fn words(text: &str) -> Result<Vec<String>, Error> {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        match range(word) {
            Some((before, first, last, after)) => {
                let numbers = (first..=last).take(WORDS_MAX + 1);
                words.extend(numbers.map(|number| format!("{before}{number}{after}")));
            }
            None => words.push(word.to_owned()),
        }
        if words.len() > WORDS_MAX {
            return Err(Error::Words(WORDS_MAX));
        }
    }
    Ok(words)
}

/// Returns the parts of a word with a range of numbers: the text before it, both numbers, and the text behind it.
fn range(word: &str) -> Option<(&str, u32, u32, &str)> {
    let (before, rest) = word.split_once('{')?;
    let (inside, after) = rest.split_once('}')?;
    let (first, last) = inside.split_once("..")?;
    Some((before, first.parse().ok()?, last.parse().ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_out() {
        assert_eq!(words(" a  /{8..10}.x {b..c} {").unwrap(), ["a", "/8.x", "/9.x", "/10.x", "{b..c}", "{"]);
        assert_eq!(words("/{3..1}").unwrap(), [""; 0]);
        assert!(words("/{0..4294967295}").is_err());
    }
}
